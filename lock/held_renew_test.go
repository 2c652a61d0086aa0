package lock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
)

// TestDeadlineCountsFromTheRequest has the answer to a renewal come late.
func TestDeadlineCountsFromTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		held := mustHold(t, lock.NewClient(service, "default", lock.WithoutRenewal()))
		service.SetHooks(after(delaying(2 * time.Second)))
		sent := time.Now()
		if err := held.Renew(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if got := held.Deadline().Sub(sent); got != 30*time.Second {
			t.Errorf("deadline %s after the request was sent, want 30s", got)
		}
		mustRelease(t, held)
	})
}

// One request without an answer must leave time for others.
func TestHangingRenewalLeavesTimeForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		held := mustHold(t, lock.NewClient(service, "default"))
		hasHung := false
		service.SetHooks(before(func(ctx context.Context, call locktest.Call) error {
			if call.Verb != locktest.Renew || hasHung {
				return nil
			}
			hasHung = true
			<-ctx.Done()
			return ctx.Err()
		}))
		pass(time.Minute)
		if err := held.Err(); err != nil {
			t.Error(err)
		}
		mustRelease(t, held)
	})
}

// TestRenewalWhileAnotherIsUnderWay shows that the automatic one is then not needed.
func TestRenewalWhileAnotherIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		held := mustHold(t, lock.NewClient(service, "default"))
		pass(8 * time.Second)
		service.SetHooks(after(delaying(4 * time.Second)))
		for range 2 {
			if err := held.Renew(t.Context(), 0); err != nil {
				t.Error(err)
			}
		}
		service.SetHooks(locktest.Hooks{})
		synctest.Wait()
		renewals := slices.DeleteFunc(requests(service), func(verb locktest.Verb) bool { return verb != locktest.Renew })
		if len(renewals) != 2 {
			t.Errorf("%d renewals in 16 seconds, want the two that were asked for", len(renewals))
		}
		mustRelease(t, held)
	})
}

func TestRenewalThatIsAnsweredAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		held := mustHold(t, lock.NewClient(service, "default", lock.WithoutRenewal()))
		service.SetHooks(after(delaying(time.Second, locktest.Renew)))
		time.AfterFunc(time.Millisecond, func() { mustRelease(t, held) })
		if err := held.Renew(t.Context(), 0); !errors.Is(err, lock.ErrReleased) {
			t.Errorf("got %v, want ErrReleased", err)
		}
	})
}
