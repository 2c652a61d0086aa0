package rest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// silent has streams in which nothing happens.
type silent struct{ lock.Backend }

func (silent) Stream(context.Context, string, v1alpha1.FullKey) (lock.Stream, error) {
	return lock.Stream{Changes: make(chan lock.Change)}, nil
}

// When the feed itself had to begin again, its viewers do not all get the whole state at once.
func TestViewersAreNotSyncedAtOnce(t *testing.T) {
	pauses := map[time.Duration]bool{}
	for range 100 {
		pause := pauseBeforeSync()
		if pauses[pause] = true; pause < 2*time.Second || pause >= 4*time.Second {
			t.Errorf("a pause of %s", pause)
		}
	}
	if len(pauses) < 50 {
		t.Errorf("%d different pauses", len(pauses))
	}
}

// A viewer that comes while the last one leaves is not ended with it.
func TestViewersComeAndLeave(t *testing.T) {
	served, err := locks.New(locks.Options{Backend: silent{}, Limits: rules.Limits{MaxTTL: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	all := feeds{config: Config{Locks: served, Clock: clocktesting.NewFakeClock(noon), ClockSkewAllowance: new(time.Duration)}, open: map[string]*feed{}}
	var viewers sync.WaitGroup
	for range 6 {
		viewers.Go(func() {
			for range 20_000 {
				joined, leave := all.join("")
				all.mu.Lock()
				if all.open[""] != joined {
					t.Error("a viewer has a feed that ends")
				}
				all.mu.Unlock()
				leave()
			}
		})
	}
	viewers.Wait()
}

// However large the changes are, and however many feeds there are, they keep no more than the bound, and a viewer that
// is behind what is kept gets the whole state.
func TestFeedsKeepFewBatches(t *testing.T) {
	large := event{name: wire.EventRenewed, lock: &v1alpha1.Lock{Spec: v1alpha1.LockSpec{Key: "a", Reason: strings.Repeat("<", 1024)}}}
	burst := make([]event, maxCollected)
	for i := range burst {
		burst[i] = large
	}
	var all feeds
	var filled []*feed
	for range 20 {
		f := &feed{config: Config{Clock: clocktesting.NewFakeClock(noon), ClockSkewAllowance: new(time.Duration)}, kept: &all.kept, news: make(chan struct{}), history: begin(nil, nil, noon)}
		filled = append(filled, f)
		f.publish(burst)
		for number := f.first; number < f.next; number++ {
			if size := len(f.batches[number%keptBatches]); size > MaxViewerBytes {
				t.Fatalf("a batch of %d bytes", size)
			}
		}
		if kept := all.kept.Load(); kept > MaxKeptBytes+20*MaxViewerBytes {
			t.Fatalf("%d feeds keep %d bytes", len(filled), kept)
		}
		if more, err := f.since(position{next: f.next - 1}, 0); err != nil || more.snapshot != nil || !strings.HasPrefix(string(more.text), "event: changes\n") {
			t.Errorf("the last batch is not kept: %+v, %v", more.now, err)
		}
		if more, err := f.since(position{next: f.first - 1}, 0); err != nil || more.snapshot == nil || more.now != (position{next: f.next}) {
			t.Errorf("a viewer that is behind is at %+v, %v", more.now, err)
		}
	}
	for _, each := range filled {
		each.fail(context.Canceled)
	}
	if kept := all.kept.Load(); kept != 0 {
		t.Errorf("feeds that have ended keep %d bytes", kept)
	}
}

// The longest lines are told, as many as there is room for.
func TestManyLongLinesAreCut(t *testing.T) {
	counted := make([]lock.Line, maxCounted)
	for i := range counted {
		counted[i] = lock.Line{Namespace: "payments", Key: fmt.Sprintf("%04d", i) + strings.Repeat("<", 500), Waiting: 1 + i/(maxCounted-1)}
	}
	lines := linesOf(counted, true)
	if size := len(textOf(wire.EventLines, lines)); size > maxLinesBytes || size < maxLinesBytes*9/10 {
		t.Errorf("%d bytes", size)
	}
	if lines.IsComplete || lines.Lines[0].Waiting != 2 {
		t.Errorf("complete: %t; first: %d", lines.IsComplete, lines.Lines[0].Waiting)
	}
}
