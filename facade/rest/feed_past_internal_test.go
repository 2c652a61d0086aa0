package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock"
)

// granting is a feed whose locks are granted for an hour each, one a second.
type granting struct {
	*feed

	t       *testing.T
	clock   *clocktesting.FakeClock
	version int
}

func newGranting(t *testing.T, all *feeds) *granting {
	t.Helper()
	clock := clocktesting.NewFakeClock(noon)
	f := &feed{config: Config{Clock: clock, ClockSkewAllowance: new(time.Duration)}, kept: &all.kept, keptPast: &all.keptPast, news: make(chan struct{})}
	f.begin(nil)
	return &granting{f, t, clock, 0}
}

func (g *granting) grant(name, holder, reason string) *v1alpha1.Lock {
	g.version++
	g.clock.Step(time.Second)
	now := v1alpha1.NewTimestamp(g.clock.Now())
	granted := &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: name, ResourceVersion: fmt.Sprint(g.version)},
		Spec: v1alpha1.LockSpec{
			Key: name, Holder: holder, Owner: "secret", Reason: reason,
			AcquireTime: &now, RenewTime: &now, ExpireTime: new(v1alpha1.NewTimestamp(now.Add(time.Hour))),
		},
	}
	g.apply(lock.Change{Lock: granted})
	return granted
}

// come returns what a viewer who comes now is told of past grants, as "key holder event time", and since when.
func (g *granting) come() (told []string, since string) {
	g.t.Helper()
	var from position
	for number := 0; ; number++ {
		more, err := g.since(from, 0)
		switch {
		case err != nil:
			g.t.Fatal(err)
		case (more.snapshot != nil) != (number == 0) || len(more.text) > MaxViewerBytes:
			g.t.Fatalf("part %d: a snapshot: %t, and %d bytes of text", number, more.snapshot != nil, len(more.text))
		}
		if strings.Contains(string(more.text), "secret") {
			g.t.Fatal("an owner token is told")
		}
		from = more.now
		if data, isPast := strings.CutPrefix(string(more.text), "event: past\ndata: "); isPast {
			var shown wire.Past
			if err := json.Unmarshal([]byte(data), &shown); err != nil || len(shown.Grants) == 0 {
				g.t.Fatalf("%v: %s", err, data)
			}
			for _, each := range shown.Grants {
				told = append(told, each.Lock.Key+" "+each.Lock.Holder+" "+each.Event+" "+each.EndedAt[11:19])
			}
			since = shown.Since[11:19]
		}
		if more.news != moreNow {
			return told, since
		}
	}
}

func TestAFeedTellsViewersWhoComeLateOfPastGrants(t *testing.T) {
	g := newGranting(t, new(feeds))
	if told, _ := g.come(); told != nil {
		t.Errorf("at the beginning: %v", told)
	}
	g.grant("a", "alice", "")
	g.grant("a", "bob", "") // One second later.
	g.apply(lock.Change{Lock: g.grant("b", "carol", ""), IsGone: true})
	g.clock.Step(2 * time.Hour)
	g.expire()
	g.snapshot = nil
	want := []string{"a alice handed-off 12:00:02", "b carol released 12:00:03", "a bob expired 13:00:02"}
	if told, since := g.come(); !slices.Equal(told, want) || since != "12:00:00" {
		t.Errorf("since %s: %v", since, told)
	}
	// A viewer with a snapshot of before has what came since then by changes.
	g.apply(lock.Change{Lock: g.grant("c", "dave", ""), IsGone: true})
	if told, _ := g.come(); !slices.Equal(told, want) {
		t.Errorf("of an older snapshot: %v", told)
	}
	// The locks had to be read again, so some ends may have been missed.
	g.begin(nil)
	if told, _ := g.come(); told != nil {
		t.Errorf("after a pause: %v", told)
	}
}

func TestAFeedKeepsFewPastGrants(t *testing.T) {
	g := newGranting(t, new(feeds))
	g.apply(lock.Change{Lock: g.grant("b", "carol", ""), IsGone: true})
	for i := range 20 {
		g.grant("a", fmt.Sprint("holder-", i), "")
	}
	told, since := g.come()
	if len(told) != 1+keptOfLock || !strings.HasPrefix(told[1], "a holder-11 ") || !strings.HasPrefix(told[keptOfLock], "a holder-18 ") || since != "12:00:00" {
		t.Errorf("of a lock with many holders, since %s: %v", since, told)
	}
	alone := newGranting(t, new(feeds))
	for i := range 1500 {
		alone.grant(fmt.Sprint("l", i%500), "alice", strings.Repeat("<", 300))
	}
	if kept := alone.past.bytes; kept > maxPastOfFeed || kept < maxPastOfFeed*9/10 {
		t.Errorf("one feed keeps %d bytes", kept)
	}
}

func TestFeedsKeepFewPastGrants(t *testing.T) {
	var all feeds
	var filled []*granting
	for range 4 {
		filled = append(filled, newGranting(t, &all))
	}
	for i := range 4500 {
		for _, each := range filled {
			each.grant(fmt.Sprint("l", i%1500), "alice", strings.Repeat("<", i/15))
			if kept := all.keptPast.Load(); kept > maxPastBytes {
				t.Fatalf("%d bytes are kept", kept)
			}
		}
	}
	if kept := all.keptPast.Load(); kept < maxPastBytes*9/10 {
		t.Errorf("only %d bytes are kept", kept)
	}
	first := filled[0]
	first.snapshot = nil
	told, since := first.come()
	if len(told) < 100 || len(told) != len(first.past.grants) || since <= "12:00:00" || since > told[0][len(told[0])-8:] {
		t.Errorf("%d grants since %s, the first %v", len(told), since, told[:min(1, len(told))])
	}
	for _, each := range filled {
		each.fail(context.Canceled)
	}
	if kept := all.keptPast.Load(); kept != 0 {
		t.Errorf("feeds that have ended keep %d bytes", kept)
	}
}
