package locks_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
)

// leaving is a backend whose caller leaves as soon as the lock is granted.
type leaving struct {
	*locktest.Backend
	then func(granted *v1alpha1.Lock)
}

func (l leaving) Acquire(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error) {
	granted, err := l.Backend.Acquire(ctx, namespace, request)
	if err == nil {
		l.then(granted)
	}
	return granted, err
}

// A caller that has left may have learnt of its grant through another replica, and have renewed it.
func TestAGrantOfACallerThatHasLeft(t *testing.T) {
	for title, isRenewed := range map[string]bool{"not renewed": false, "renewed": true} {
		t.Run(title, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Date(2024, 3, 15, 10, 30, 0, 0, time.UTC))
			memory := locktest.New(locktest.WithClock(clock))
			calling, leave := context.WithCancel(t.Context())
			l, caller := newLocks(t, leaving{memory, func(granted *v1alpha1.Lock) {
				clock.Step(time.Second)
				if isRenewed {
					if _, err := memory.Renew(t.Context(), "default", "lock:k", lock.Proof{Owner: granted.Spec.Owner}, 0); err != nil {
						t.Error(err)
					}
				}
				leave()
			}})
			acquisition, err := l.Prepare(caller, aMinute, false)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := acquisition.Acquire(calling, "f"); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want context.Canceled", err)
			}
			if isHeld := len(memory.All()) > 0; isHeld != isRenewed {
				t.Errorf("held: %t, want %t", isHeld, isRenewed)
			}
		})
	}
}
