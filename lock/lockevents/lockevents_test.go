package lockevents_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/lockevents"
	"forrst.dev/lock-operator/lock/rules"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// secret is an owner token, which no Event may have.
const secret = "the-owner-token"

func grantedTo(holder, key string, at time.Time) *v1alpha1.Lock {
	lock := rules.Grant("payments", rules.Acquisition{
		Key: key, Owner: secret, Holder: holder, TTL: 30 * time.Second, Reason: "monthly report",
	}, rules.DefaultLimits(), at)
	lock.UID, lock.ResourceVersion = "uid-1", "1"
	return lock
}

// drain returns the Events so far, none of which may have the owner token.
func drain(t *testing.T, recorder *events.FakeRecorder) []string {
	t.Helper()
	var notes []string
	for len(recorder.Events) > 0 {
		note := <-recorder.Events
		if strings.Contains(note, secret) {
			t.Errorf("an Event has the owner token: %s", note)
		}
		notes = append(notes, note)
	}
	return notes
}

func TestAnExpiredLockIsReported(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	reporter := &lockevents.Reporter{Recorder: recorder}
	reporter.Expired(grantedTo("alice", "billing:report", noon))
	reporter.Expired(grantedTo("alice", strings.Repeat("ü", 512), noon))
	notes := drain(t, recorder)
	const want = `Warning Expired lock:billing:report, held by "alice", expired at 2026-11-23T12:00:30Z and was deleted: its holder neither renewed nor released it`
	if diff := cmp.Diff(want, notes[0]); diff != "" {
		t.Error(diff)
	}
	if len(notes[1]) > audit.MaxMessageBytes+len("Warning Expired ") {
		t.Errorf("a note of %d bytes", len(notes[1]))
	}
	var none *lockevents.Reporter
	none.Expired(grantedTo("alice", "billing:report", noon))
}

func TestTheHolderIsNotBlamedForALockThatTheOperatorRenews(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	reporter := &lockevents.Reporter{Recorder: recorder}
	before := grantedTo("alice", "billing:report", noon)
	before.Spec.RenewalPolicy = v1alpha1.RenewalByOperator
	reporter.Expired(before)
	reporter.Changed(before, grantedTo("bob", "billing:report", noon.Add(time.Hour)))
	for _, note := range drain(t, recorder) {
		if !strings.HasSuffix(note, ": lock-operator could not renew it in time, or may renew it no more") {
			t.Error(note)
		}
	}
}

func TestOnlyATakeOverIsReportedAsSuch(t *testing.T) {
	before := grantedTo("alice", "billing:report", noon)
	const takenOver = `Warning TakenOver lock:billing:report, held by "alice", expired at 2026-11-23T12:00:30Z and was taken over by "bob": its holder neither renewed nor released it`
	renewed := before.DeepCopy()
	renewed.Spec.RenewTime, renewed.Spec.ExpireTime = new(v1alpha1.NewTimestamp(noon.Add(10*time.Second))), new(v1alpha1.NewTimestamp(noon.Add(40*time.Second)))
	created := grantedTo("bob", "billing:report", noon.Add(time.Hour))
	created.UID = types.UID("uid-2")
	cases := map[string]struct {
		after *v1alpha1.Lock
		want  []string
	}{
		"a take-over":                          {grantedTo("bob", "billing:report", noon.Add(31*time.Second)), []string{takenOver}},
		"a hand-off":                           {grantedTo("bob", "billing:report", noon.Add(10*time.Second)), nil},
		"a renewal":                            {renewed, nil},
		"the same state":                       {before.DeepCopy(), nil},
		"a lock that was created after an end": {created, nil},
		"a lock without stamps":                {&v1alpha1.Lock{ObjectMeta: before.ObjectMeta}, nil},
	}
	for title, test := range cases {
		t.Run(title, func(t *testing.T) {
			recorder := events.NewFakeRecorder(10)
			(&lockevents.Reporter{Recorder: recorder}).Changed(before, test.after)
			if diff := cmp.Diff(test.want, drain(t, recorder)); diff != "" {
				t.Errorf("Events (-want +got):\n%s", diff)
			}
		})
	}
}

// waits are those of a test: at most one lock that callers wait for.
type waits struct {
	mu      sync.Mutex
	lock    *v1alpha1.Lock
	callers int
}

func (w *waits) WaitedFor(each func(*v1alpha1.Lock, int)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.callers > 0 {
		each(w.lock, w.callers)
	}
}

// set has so many callers wait for the lock.
func (w *waits) set(lock *v1alpha1.Lock, callers int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lock, w.callers = lock, callers
}

func TestALongWaitIsReportedOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder, now := events.NewFakeRecorder(100), &waits{}
		long := &lockevents.LongWaits{Waits: now, Reporter: &lockevents.Reporter{Recorder: recorder}, Clock: clock.RealClock{}}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- long.Start(ctx) }()
		pass := func(of time.Duration) []string {
			t.Helper()
			<-time.After(of)
			synctest.Wait()
			return drain(t, recorder)
		}
		lock := grantedTo("alice", "billing:report", noon)
		now.set(lock, 3)
		if notes := pass(4 * time.Minute); notes != nil {
			t.Errorf("after 4 minutes: %v", notes)
		}
		now.set(nil, 0) // The clients call again.
		pass(45 * time.Second)
		now.set(lock.DeepCopy(), 2)
		want := []string{`Normal WaitingLong Callers have waited for lock:billing:report, held by "alice", for 5m0s, now 2 of them in one line; it is held since 2026-11-23T12:00:00Z: monthly report`}
		if diff := cmp.Diff(want, pass(2*time.Minute)); diff != "" {
			t.Errorf("after 6 minutes (-want +got):\n%s", diff)
		}
		if notes := pass(8 * time.Minute); notes != nil {
			t.Errorf("soon again: %v", notes)
		}
		if notes := pass(5 * time.Minute); len(notes) != 1 {
			t.Errorf("10 minutes later: %v", notes)
		}
		now.set(nil, 0)
		pass(2 * time.Minute)
		now.set(lock, 1) // Another wait begins.
		if notes := pass(4 * time.Minute); notes != nil {
			t.Errorf("in another wait: %v", notes)
		}
		now.set(grantedTo("bob", "billing:report", noon.Add(time.Hour)), 1) // Another grant begins.
		if notes := pass(4 * time.Minute); notes != nil {
			t.Errorf("after another grant: %v", notes)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestEventsAreBoundedByNamespaceAndTogether(t *testing.T) {
	now, recorder := clocktesting.NewFakeClock(noon), events.NewFakeRecorder(10_000)
	reporter := &lockevents.Reporter{Recorder: lockevents.Bounded(recorder, now)}
	expire := func(namespace string, number int) {
		for i := range number {
			lock := grantedTo("alice", fmt.Sprintf("k-%d", i), noon)
			lock.Namespace = namespace
			reporter.Expired(lock)
		}
	}
	want := func(when string, want int) {
		t.Helper()
		if got := len(drain(t, recorder)); got != want {
			t.Errorf("%s: %d Events, want %d", when, got, want)
		}
	}
	expire("noisy", 1000)
	want("of one namespace", 25)
	expire("quiet", 1)
	want("of another one", 1)
	now.Step(10 * time.Second)
	expire("noisy", 1000)
	want("10 s later", 2)
	for i := range 3000 { // More than are remembered.
		expire(fmt.Sprintf("namespace-%d", i), 1)
	}
	want("of all together", 98)
	now.Step(time.Hour)
	expire("noisy", 1000)
	want("an hour later", 25)
}
