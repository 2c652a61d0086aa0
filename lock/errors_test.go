package lock_test

import (
	"errors"
	"testing"
	"time"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
)

// TestErrorsNameTheLockOnce holds that the text of an error says what failed, and says it once, though the
// backend and the hold both name the lock.
func TestErrorsNameTheLockOnce(t *testing.T) {
	backend := locktest.New()
	locks := lock.NewClient(backend, "payments")
	acquire := func(options ...lock.Option) *lock.Held {
		t.Helper()
		held, err := locks.Acquire(t.Context(), "billing:report", options...)
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	expired := acquire(lock.WithTTL(200*time.Millisecond), lock.WithoutRenewal())
	<-expired.Done()
	released := acquire()
	if err := released.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	unanswered := acquire()
	backend.SetUnavailable(true)
	const named = "lock:billing:report in namespace payments: "
	for _, test := range []struct {
		err     error
		matches error
		text    string
	}{
		{expired.Release(t.Context()), lock.ErrExpired, "release " + named + "lock has expired: lock is not held"},
		{released.Renew(t.Context(), 0), lock.ErrReleased, "renew " + named + "lock was released: lock is not held"},
		{released.Detach(), lock.ErrReleased, "detach " + named + "lock was released: lock is not held"},
		{unanswered.Renew(t.Context(), 0), lock.ErrUnavailable, "renew " + named + "lock service is unavailable"},
		{unanswered.Release(t.Context()), lock.ErrUnavailable, "release " + named + "lock service is unavailable"},
	} {
		if !errors.Is(test.err, test.matches) || test.err.Error() != test.text {
			t.Errorf("%q, want %q, which matches %v", test.err, test.text, test.matches)
		}
	}
}
