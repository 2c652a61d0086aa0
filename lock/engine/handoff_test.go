package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

func TestAHandOffOfALockThatWasWritten(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		acquire(t, engine, by("a"))
		answers := queued(t, engine, waiting("b", time.Hour))
		etcd.touch()
		release(t, engine, "a")
		mustGet(t, answers)
	})
}

func TestAHandOffDoesNotTouchTheLockOfALaterHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine, other := start(t, etcd), start(t, etcd)
		acquire(t, engine, by("a"))
		answers := make(chan answer, 1)
		etcd.mute(true)
		queueUp(t.Context(), t, engine, waiting("b", 5*time.Second), answers)
		if err := other.ForceRelease(t.Context(), "default", key, "stuck"); err != nil {
			t.Fatal(err)
		}
		acquire(t, other, by("c"))
		etcd.mute(false)
		if err := engine.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}); !errors.Is(err, lock.ErrOwnerMismatch) {
			t.Errorf("got %v, want ErrOwnerMismatch", err)
		}
		if owner := etcd.owner(name); owner != "c" {
			t.Errorf("%q holds the lock, want c", owner)
		}
		if got := <-answers; !errors.Is(got.err, lock.ErrTimeout) {
			t.Errorf("the waiter is told %v, want ErrTimeout", got.err)
		}
	})
}

func TestAGrantToACallerThatHasLeftEndsAfterAnOutage(t *testing.T) {
	cases := map[string]struct {
		others int
		broken string
	}{
		"when there is no other waiter": {broken: "delete"},
		"when it cannot be handed off":  {others: 1, broken: "update"},
	}
	for title, test := range cases {
		bubbles(t, title, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
			acquire(t, engine, by("a"))
			answers := make(chan answer, 2)
			ctx, cancel := context.WithCancel(t.Context())
			queueUp(ctx, t, engine, waiting("gone", time.Hour), answers)
			for range test.others {
				queueUp(t.Context(), t, engine, waiting("b", time.Hour), answers)
			}
			isFirst := true
			etcd.inject(faults{
				before: func(verb string) error {
					if verb == test.broken && !isFirst {
						return errRefused
					}
					return nil
				},
				after: func(string) error {
					if isFirst {
						isFirst = false
						cancel()
						pass(time.Millisecond)
					}
					return nil
				},
			})
			release(t, engine, "a")
			pass(time.Second)
			etcd.inject(faults{})
			pass(9 * time.Second)
			if owner := etcd.owner(name); owner == "gone" {
				t.Errorf("%q still holds the lock", owner)
			}
		})
	}
}

// The hand-off happened, and its grant has ended before the next read.
func TestAReleaseToAWaiterThatHasLeft(t *testing.T) {
	for title, next := range map[string]string{"and the lock is free": "", "and another holder has the lock": "c"} {
		bubbleOf(t, title, func(t *testing.T) {
			etcd := newEtcd()
			engine, other := start(t, etcd), start(t, etcd)
			acquire(t, engine, by("a"))
			answers := queued(t, engine, waiting("b", time.Hour))
			etcd.mute(true)
			isFirst := true
			etcd.inject(faults{after: func(verb string) error {
				if verb != "update" || !isFirst {
					return nil
				}
				isFirst = false
				etcd.remove()
				if next != "" {
					acquire(t, other, by(next))
				}
				return errLostAnswer
			}})
			if err := engine.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}); err != nil {
				t.Errorf("the release, which happened, returns %v", err)
			}
			etcd.inject(faults{})
			etcd.mute(false)
			if next != "" {
				release(t, other, next)
			}
			mustGet(t, answers)
		})
	}
}

// After a failed hand-off no write is under way: there is no outcome to wait for.
func TestAnOverdueWaitEndsAfterAFailedHandOff(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		acquire(t, engine, by("a"))
		began := time.Now()
		answers := queued(t, engine, waiting("b", time.Second))
		etcd.inject(faults{before: always(errLostAnswer)})
		if err := engine.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}); !errors.Is(err, lock.ErrUnavailable) {
			t.Fatalf("release: got %v, want ErrUnavailable", err)
		}
		released := time.Since(began)
		got := <-answers
		if got.err == nil {
			t.Error("acquired")
		}
		if late := time.Since(began) - released; late > 100*time.Millisecond {
			t.Errorf("waited %v longer than the hand-off took", late)
		}
		etcd.inject(faults{})
		passOrphanWindow()
	})
}

// A waiter that the API server refuses has to be told so, also if its wait ends during the hand-off.
func TestAnOverdueWaitEndsWithTheRefusalOfItsHandOff(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		acquire(t, engine, by("a"))
		answers := queued(t, engine, waiting("b", time.Second))
		etcd.inject(faults{before: func(verb string) error {
			if verb == "delete" {
				return nil
			}
			pass(2 * time.Second)
			return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("Lock").GroupKind(), name, nil)
		}})
		release(t, engine, "a")
		if got := <-answers; !errors.Is(got.err, lock.ErrInvalid) {
			t.Errorf("got %v, want ErrInvalid", got.err)
		}
	})
}

// Without an informer nothing else wakes the queue.
func TestAWaiterKeepsWaitingAfterAFailedHandOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine := startWith(t, engine.Options{Objects: etcd.locks, Limits: rules.DefaultLimits()})
		acquire(t, engine, by("a"))
		answers := queued(t, engine, waiting("b", time.Hour))
		etcd.inject(faults{before: func(verb string) error {
			if verb == "update" {
				pass(1500 * time.Millisecond) // longer than until the next look
				etcd.inject(faults{})
				etcd.touch()
			}
			return nil
		}})
		release(t, engine, "a")
		began := time.Now()
		mustGet(t, answers)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("acquired %v after the release", took)
		}
	})
}
