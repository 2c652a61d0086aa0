package cli

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/lock"
)

func TestSaysWhoHoldsALock(t *testing.T) {
	held := &lock.HeldError{Key: "lock:adhoc:test", Holder: "ann", ExpireTime: now.Add(12 * time.Second)}
	for _, test := range []struct {
		me, want string
		err      error
	}{
		{"bob", "adhoc:test is held by ann; it ends in 12s unless it is renewed", held},
		{"ann", "adhoc:test is held by you; it ends in 12s unless it is renewed", fmt.Errorf("wrapped: %w", held)},
		{"bob", "the wait is over: adhoc:test is held by ann; it ends in 12s unless it is renewed", errors.Join(lock.ErrTimeout, held)},
		{"bob", "adhoc:test has expired, but is kept a moment longer, since clocks may differ", &lock.HeldError{Key: "lock:adhoc:test", IsExpired: true}},
		{"bob", "adhoc:test is held", &lock.HeldError{Key: "lock:adhoc:test"}},
	} {
		s := session.New(session.Options{Cluster: as(test.me, everything, fakeCluster()), Clock: clocktesting.NewFakeClock(now)})
		if got := busy(t.Context(), s, test.err); got != test.want {
			t.Errorf("said %q, want %q", got, test.want)
		}
	}
}

func TestSaysWhyALockWasLost(t *testing.T) {
	for want, err := range map[string]error{
		"k was released by you or by force":               fmt.Errorf("renew: %w", lock.ErrForceReleased),
		"k could not be renewed in time":                  nil,
		"lock was taken over: " + lock.ErrNotHeld.Error(): lock.ErrTakenOver,
	} {
		if got := whyLost("lock:k", err); got != want {
			t.Errorf("said %q, want %q", got, want)
		}
	}
}

func TestAnInterruptedWaitSaysBySignal(t *testing.T) {
	for cause, want := range map[string]failure.Code{"interrupt signal received": 130, "terminated signal received": 143} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New(cause))
		options := acquireOptions{grantOptions: grantOptions{Session: session.New(session.Options{Clock: clocktesting.NewFakeClock(now)})}}
		if got := failure.From(options.explain(ctx, "k", ctx.Err()), "").Code; got != want {
			t.Errorf("%s: %d, want %d", cause, got, want)
		}
	}
}
