package locktest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
)

var errHook = errors.New("hook")

func TestACallThatTheHookBeforeItFailsDoesNothing(t *testing.T) {
	f := newFixture(locktest.WithHooks(locktest.Hooks{Before: locktest.Failing(locktest.Release, errHook)}))
	f.mustAcquire(t, "a")
	if err := f.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}); !errors.Is(err, errHook) {
		t.Errorf("got %v, want the error of the hook", err)
	}
	if owner := f.owner(t); owner != "a" {
		t.Errorf("held by %q", owner)
	}
}

// Of the two calls that end a lock, only a release is completed for a caller that has left.
func TestAForcedReleaseIsNotBegunForACallerThatHasLeft(t *testing.T) {
	f := newFixture()
	f.mustAcquire(t, "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.ForceRelease(ctx, "default", key, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("forced release: got %v", err)
	}
	if err := f.Release(ctx, "default", key, lock.Proof{Owner: "a"}); err != nil {
		t.Errorf("release: got %v", err)
	}
}

func TestACallWhoseAnswerIsLostHasHappened(t *testing.T) {
	f := newFixture()
	f.SetHooks(locktest.Hooks{After: locktest.Failing(locktest.Acquire, lock.ErrUnavailable)})
	if granted, err := f.Acquire(t.Context(), "default", by("a")); granted != nil || !errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("got %v, %v, want ErrUnavailable", granted, err)
	}
	if owner := f.owner(t); owner != "a" {
		t.Errorf("held by %q, want the owner whose answer was lost", owner)
	}
	// An answer that says why not is not lost.
	if _, err := f.Acquire(t.Context(), "default", by("b")); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("got %v, want ErrHeld", err)
	}
}

func TestTheWaitingHookEndsAWait(t *testing.T) {
	for name, test := range map[string]struct{ hook, want error }{
		"with its error":           {hook: errHook, want: errHook},
		"as at the end of any one": {hook: lock.ErrTimeout, want: lock.ErrHeld},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(locktest.WithHooks(locktest.Hooks{Waiting: locktest.Failing(locktest.Acquire, test.hook)}))
			f.mustAcquire(t, "a")
			request := by("b")
			request.Wait = time.Second
			if _, err := f.Acquire(t.Context(), "default", request); !errors.Is(err, test.hook) || !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if f.Waiting("default", key) != 0 {
				t.Error("the waiter is still in the queue")
			}
		})
	}
}

// The hook fails after the waiter was granted the lock.
func TestALockGrantedDuringAFailingWaitingHookGoesToTheNextWaiter(t *testing.T) {
	f := newFixture()
	f.mustAcquire(t, "a")
	f.SetHooks(locktest.Hooks{Waiting: func(ctx context.Context, _ locktest.Call) error {
		return errors.Join(errHook, f.Release(ctx, "default", key, lock.Proof{Owner: "a"}))
	}})
	request := by("b")
	request.Wait = lock.WaitForever
	if _, err := f.Acquire(t.Context(), "default", request); !errors.Is(err, errHook) {
		t.Errorf("got %v, want the error of the hook", err)
	}
	if owner := f.owner(t); owner != lock.ErrNotHeld.Error() {
		t.Errorf("held by %q", owner)
	}
}

func TestCallsReturnsTheArgumentsOfEachCall(t *testing.T) {
	f := newFixture(locktest.WithRecord(), locktest.WithOwner("new"))
	request := by("")
	granted, err := f.Acquire(t.Context(), "default", request)
	if err != nil || granted.Spec.Owner != "new" {
		t.Fatalf("got %v, %v, want the owner that was set", granted, err)
	}
	proof := lock.Proof{Owner: "new", Holder: "mallory"}
	if err := f.Release(t.Context(), "default", key, proof); !errors.Is(err, lock.ErrOwnerMismatch) {
		t.Errorf("released by another holder: %v", err)
	}
	if err := f.ForceRelease(t.Context(), "default", key, "maintenance"); err != nil {
		t.Error(err)
	}
	want := []locktest.Call{
		{Verb: locktest.Acquire, Namespace: "default", Key: key, Request: request},
		{Verb: locktest.Release, Namespace: "default", Key: key, Proof: proof},
		{Verb: locktest.ForceRelease, Namespace: "default", Key: key, Reason: "maintenance"},
	}
	if diff := cmp.Diff(want, f.Calls()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if calls := f.Calls(); len(calls) != 0 {
		t.Errorf("calls %v are returned twice", calls)
	}
}
