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

// TestARefusedRenewalChangesNothing has the service refuse a shorter ttl for each of its reasons.
func TestARefusedRenewalChangesNothing(t *testing.T) {
	for _, refusal := range []error{lock.ErrInvalid, lock.ErrRefused, lock.ErrForbidden, lock.ErrUnauthenticated} {
		synctest.Test(t, func(t *testing.T) {
			service := newBackend()
			held := mustHold(t, lock.NewClient(service, "default", lock.WithoutRenewal()))
			deadline := held.Deadline()
			service.SetHooks(before(locktest.Failing(locktest.Renew, refusal)))
			if err := held.Renew(t.Context(), time.Second); !errors.Is(err, refusal) {
				t.Errorf("got %v, want %v", err, refusal)
			}
			if !held.Deadline().Equal(deadline) {
				t.Errorf("after %v the deadline is %s earlier", refusal, deadline.Sub(held.Deadline()))
			}
			pass(30 * time.Second)
			if err := held.Err(); !errors.Is(err, lock.ErrExpired) {
				t.Errorf("after %v the lock has ended by %v, want ErrExpired", refusal, err)
			}
		})
	}
}

// TestARefusedRenewalLeavesTheAutomaticOnesAlone counts requests.
func TestARefusedRenewalLeavesTheAutomaticOnesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		held := mustHold(t, lock.NewClient(service, "default"))
		requests(service)
		if err := held.Renew(t.Context(), 48*time.Hour); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("got %v, want ErrInvalid", err)
		}
		pass(8 * time.Second)
		if made := requests(service); len(made) != 1 {
			t.Errorf("requests %v within a third of the ttl, want the refused one alone", made)
		}
		pass(20 * time.Second)
		mustRelease(t, held)
	})
}
