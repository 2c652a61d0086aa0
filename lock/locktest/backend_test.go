package locktest_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
)

const key = v1alpha1.FullKey("lock:billing:report")

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// fixture is a backend whose clock stands still.
type fixture struct {
	*locktest.Backend
	clock *clocktesting.FakeClock
}

func newFixture(options ...locktest.Option) *fixture {
	clock := clocktesting.NewFakeClock(noon)
	return &fixture{locktest.New(append(options, locktest.WithClock(clock))...), clock}
}

// by asks for thirty seconds.
func by(owner string) lock.Request {
	return lock.Request{Acquisition: rules.Acquisition{Key: "billing:report", Owner: owner, TTL: 30 * time.Second}}
}

func (f *fixture) mustAcquire(t *testing.T, owner string) *v1alpha1.Lock {
	t.Helper()
	acquired, err := f.Acquire(t.Context(), "default", by(owner))
	if err != nil {
		t.Fatal(err)
	}
	return acquired
}

type outcome struct {
	lock *v1alpha1.Lock
	err  error
}

// queue starts an acquire, and returns when it waits.
func (f *fixture) queue(ctx context.Context, owner string, wait time.Duration) <-chan outcome {
	result := make(chan outcome, 1)
	before := f.Waiting("default", key)
	request := by(owner)
	request.Wait = wait
	go func() {
		acquired, err := f.Acquire(ctx, "default", request)
		result <- outcome{acquired, err}
	}()
	for f.Waiting("default", key) == before {
		runtime.Gosched()
	}
	return result
}

func (f *fixture) owner(t *testing.T) string {
	t.Helper()
	held, err := f.Get(t.Context(), "default", key)
	switch {
	case errors.Is(err, lock.ErrNotHeld):
		return lock.ErrNotHeld.Error()
	case err != nil:
		return err.Error()
	}
	return held.Spec.Owner
}

// A step of the clock takes effect before any later call, however late the goroutines of the
// waiters run.
func TestAStepOfTheClockTakesEffectAtOnce(t *testing.T) {
	f := newFixture()
	f.mustAcquire(t, "a")
	waiting := f.queue(t.Context(), "b", lock.WaitForever)
	f.clock.Step(30 * time.Second)
	if _, err := f.Acquire(t.Context(), "default", by("c")); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("got %v, want the waiter to come first", err)
	}
	if result := <-waiting; result.err != nil || result.lock.Spec.Owner != "b" {
		t.Errorf("got %v, %v", result.lock, result.err)
	}
}

// TestAWaitThatEndsBeforeTheExpiryIsNotGranted steps over both at once.
func TestAWaitThatEndsBeforeTheExpiryIsNotGranted(t *testing.T) {
	f := newFixture()
	f.mustAcquire(t, "a")
	short := f.queue(t.Context(), "b", 29*time.Second)
	long := f.queue(t.Context(), "c", 31*time.Second)
	f.clock.Step(time.Minute)
	if result := <-short; !errors.Is(result.err, lock.ErrTimeout) {
		t.Errorf("got %v, want ErrTimeout", result.err)
	}
	if result := <-long; result.err != nil {
		t.Errorf("got %v, want the lock that came free in time", result.err)
	}
}

func TestAWaiterIsWokenAtTheExpiryOfARenewal(t *testing.T) {
	f := newFixture()
	f.mustAcquire(t, "a")
	waiting := f.queue(t.Context(), "b", lock.WaitForever)
	f.clock.Step(20 * time.Second)
	if _, err := f.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0); err != nil {
		t.Fatal(err)
	}
	f.clock.Step(30*time.Second - time.Microsecond)
	if owner := f.owner(t); owner != "a" {
		t.Errorf("held by %q a moment before the expiry", owner)
	}
	f.clock.Step(time.Microsecond)
	result := <-waiting
	if result.err != nil || !result.lock.Spec.AcquireTime.Time.Equal(noon.Add(50*time.Second)) {
		t.Errorf("got %v, %v; want a grant at the expiry", result.lock, result.err)
	}
}

func TestAGrantThatItsWaiterTakesTooLateIsMadeAnew(t *testing.T) {
	f := newFixture()
	f.mustAcquire(t, "a")
	first := f.queue(t.Context(), "b", lock.WaitForever)
	second := f.queue(t.Context(), "c", lock.WaitForever)
	f.clock.Step(30 * time.Second)
	if owner := f.owner(t); owner != "b" {
		t.Errorf("held by %q, want the waiter", owner)
	}
	f.clock.Step(30 * time.Second)
	result := <-first
	if result.err != nil {
		t.Fatalf("got %v, want the lock", result.err)
	}
	// Whether it is the first or the second grant depends on how late its goroutine runs.
	want := "c"
	if result.lock.Spec.AcquireTime.Time.Equal(noon.Add(time.Minute)) {
		want = "b"
	}
	if owner := f.owner(t); owner != want {
		t.Errorf("held by %q, want %s", owner, want)
	}
	f.clock.Step(30 * time.Second)
	if result := <-second; result.err != nil {
		t.Errorf("the next waiter: %v", result.err)
	}
}

func TestExpire(t *testing.T) {
	f := newFixture()
	granted := f.mustAcquire(t, "a")
	token, err := granted.FencingToken()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Expire("default", key); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0); !errors.Is(err, lock.ErrExpired) {
		t.Errorf("renewal: got %v, want ErrExpired", err)
	}
	if err := f.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}); !errors.Is(err, lock.ErrExpired) {
		t.Errorf("release: got %v, want ErrExpired", err)
	}
	if err := f.Expire("default", key); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("again: got %v, want ErrNotHeld", err)
	}
	later, err := f.mustAcquire(t, "b").FencingToken()
	if err != nil || later <= token {
		t.Errorf("token %d after %d, error %v", later, token, err)
	}
}

func TestExpireGrantsTheLockToTheFirstWaiter(t *testing.T) {
	f := newFixture()
	f.mustAcquire(t, "a")
	waiting := f.queue(t.Context(), "b", lock.WaitForever)
	if err := f.Expire("default", key); err != nil {
		t.Fatal(err)
	}
	if result := <-waiting; result.err != nil {
		t.Error(result.err)
	}
}

func TestNothingHappensDuringAnOutage(t *testing.T) {
	f := newFixture()
	f.mustAcquire(t, "a")
	patient := f.queue(t.Context(), "b", lock.WaitForever)
	hasty := f.queue(t.Context(), "c", time.Second)
	f.SetUnavailable(true)

	_, acquireErr := f.Acquire(t.Context(), "default", by("d"))
	_, renewErr := f.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0)
	_, getErr := f.Get(t.Context(), "default", key)
	_, listErr := f.List(t.Context(), "default", lock.Filter{})
	_, watchErr := f.Watch(t.Context(), "default", key)
	for call, err := range map[string]error{
		"acquire": acquireErr, "renew": renewErr, "get": getErr, "list": listErr, "watch": watchErr,
		"release":       f.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}),
		"force release": f.ForceRelease(t.Context(), "default", key, "maintenance"),
		"expire":        f.Expire("default", key),
	} {
		if !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("%s: got %v, want ErrUnavailable", call, err)
		}
	}
	f.clock.Step(time.Minute)
	if result := <-hasty; !errors.Is(result.err, lock.ErrUnavailable) {
		t.Errorf("end of a wait: got %v, want ErrUnavailable", result.err)
	}
	f.SetUnavailable(false)
	if result := <-patient; result.err != nil {
		t.Errorf("after the outage: %v", result.err)
	}
}

func TestOptions(t *testing.T) {
	f := newFixture(locktest.WithHolder("alice"), locktest.WithLimits(rules.Limits{DefaultTTL: time.Second, MaxTTL: time.Minute}))
	request := by("a")
	request.TTL = 0
	acquired, err := f.Acquire(t.Context(), "default", request)
	if err != nil || acquired.Spec.Holder != "alice" || acquired.Spec.TTL.Duration != time.Second {
		t.Errorf("got %v, %v", acquired, err)
	}
	request = lock.Request{Acquisition: rules.Acquisition{Key: "other", Holder: "bob"}}
	if acquired, err = f.Acquire(t.Context(), "default", request); err != nil || acquired.Spec.Holder != "bob" || acquired.Spec.Owner == "" {
		t.Errorf("got %v, %v", acquired, err)
	}
	request.TTL = time.Minute + 1
	if _, err := f.Acquire(t.Context(), "default", request); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
}

// The test changes the answers; the stored lock must not change.
func TestAnswersAreCopies(t *testing.T) {
	f := newFixture()
	f.mustAcquire(t, "a").Spec.Owner = "changed"
	held, err := f.Get(t.Context(), "default", key)
	if err != nil {
		t.Fatal(err)
	}
	held.Spec.Owner = "changed"
	renewed, err := f.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	renewed.Spec.Owner = "changed"
	if owner := f.owner(t); owner != "a" {
		t.Errorf("held by %q", owner)
	}
}

// rounds is how often a test tries to meet a moment.
const rounds = 200

// The lock is released before the caller has noticed that its context ended.
func TestACallerThatHasLeftGetsNoGrant(t *testing.T) {
	f := newFixture()
	for range rounds {
		f.mustAcquire(t, "a")
		ctx, cancel := context.WithCancel(t.Context())
		leaving := f.queue(ctx, "b", lock.WaitForever)
		cancel()
		if err := f.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}); err != nil {
			t.Fatal(err)
		}
		if owner := f.owner(t); owner != lock.ErrNotHeld.Error() {
			t.Fatalf("held by %q", owner)
		}
		if result := <-leaving; !errors.Is(result.err, context.Canceled) {
			t.Fatalf("got %v", result.err)
		}
	}
}

// The context of a caller ends after it was granted the lock, before it has noticed.
func TestAGrantThatItsCallerDoesNotTakeGoesToTheNextWaiter(t *testing.T) {
	f := newFixture()
	for range rounds {
		f.mustAcquire(t, "a")
		ctx, cancel := context.WithCancel(t.Context())
		leaving, next := f.queue(ctx, "b", lock.WaitForever), f.queue(t.Context(), "c", lock.WaitForever)
		if err := f.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}); err != nil {
			t.Fatal(err)
		}
		cancel()
		if result := <-leaving; result.err == nil {
			if err := f.Release(t.Context(), "default", key, lock.Proof{Owner: "b"}); err != nil {
				t.Fatal(err)
			}
		}
		if result := <-next; result.err != nil {
			t.Fatal(result.err)
		}
		if err := f.Release(t.Context(), "default", key, lock.Proof{Owner: "c"}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAllShowsExpiredLocks(t *testing.T) {
	f := newFixture(locktest.WithRecord(), locktest.WithHooks(locktest.Hooks{Before: locktest.Failing(locktest.List, errHook)}))
	f.mustAcquire(t, "a")
	if _, err := f.Acquire(t.Context(), "a-namespace", by("b")); err != nil {
		t.Fatal(err)
	}
	f.clock.Step(time.Minute)
	f.SetUnavailable(true)
	f.Calls()
	if all := f.All(); len(all) != 2 || all[0].Namespace != "a-namespace" || all[1].Spec.Owner != "a" {
		t.Errorf("got %v, want the expired locks of both namespaces", all)
	}
	if calls := f.Calls(); len(calls) != 0 {
		t.Errorf("recorded %v", calls)
	}
}

// A waiter whose wait is over, and that has not run yet, must not panic if the holder releases first.
func TestOverdueWaiterBesideAFreedLock(t *testing.T) {
	f := newFixture()
	f.mustAcquire(t, "a")
	joined, goOn := make(chan struct{}), make(chan struct{})
	f.SetHooks(locktest.Hooks{Waiting: func(context.Context, locktest.Call) error {
		close(joined)
		<-goOn
		return nil
	}})
	result := make(chan outcome, 1)
	panicked := make(chan any, 1)
	go func() {
		defer func() { panicked <- recover() }()
		request := by("b")
		request.Wait = time.Second
		acquired, err := f.Acquire(t.Context(), "default", request)
		result <- outcome{acquired, err}
	}()
	<-joined
	f.clock.Step(2 * time.Second) // b is overdue; its goroutine has not looked yet.
	if err := f.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	if p := <-panicked; p != nil {
		t.Fatalf("Acquire panicked: %v", p)
	}
	if got := <-result; got.err != nil || got.lock.Spec.Owner != "b" {
		t.Errorf("got %v, %v; want the lock, as the last try", got.lock, got.err)
	}
}
