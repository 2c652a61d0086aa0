package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
)

// A caller whose answer is lost finds its grant through another replica, and renews it, before the engine that has made the
// grant recognises it. The engine then knows that the caller has left, and yet must not end the grant.
func TestAGrantThatWasRenewedBeforeItIsRecognisedStays(t *testing.T) {
	for verb, begin := range map[string]func(*testing.T, *engine.Engine){
		"create": func(*testing.T, *engine.Engine) {},
		"update": func(t *testing.T, first *engine.Engine) {
			t.Helper()
			acquire(t, first, by("a"))
		},
	} {
		bubbleOf(t, "after an unanswered "+verb, func(t *testing.T) {
			etcd := newEtcd()
			first, second := start(t, etcd), start(t, etcd)
			begin(t, first)
			calling, hangUp := context.WithCancel(t.Context())
			proof, renewed := lock.Proof{Owner: "b"}, false
			etcd.inject(faults{after: func(got string) error {
				if got != verb {
					return nil
				}
				etcd.inject(faults{})
				hangUp()
				pass(time.Second)
				_, err := second.Renew(t.Context(), "default", key, proof, 0)
				renewed = err == nil
				return errLostAnswer
			}})
			request := by("b")
			if verb == "update" {
				request = waiting("b", time.Hour)
			}
			request.TTL = time.Hour
			answers := make(chan answer, 1)
			queueUp(calling, t, first, request, answers)
			if verb == "update" {
				release(t, first, "a")
			}
			<-answers
			passOrphanWindow()
			if owner := etcd.owner(name); !renewed || owner != "b" {
				t.Errorf("held by %q, want the holder that has renewed (%t)", owner, renewed)
			}
		})
	}
}

// The last try finds no server, and the first one has happened: to say that nothing has changed would make two holders.
func TestAHandOffThatMayHaveHappenedIsNotToldAsUndone(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, running *engine.Engine) {
		acquire(t, running, by("a"))
		queued(t, running, waiting("b", time.Hour))
		etcd.inject(faults{after: func(string) error {
			etcd.inject(faults{before: always(errRefused)})
			return errLostAnswer
		}})
		if err := running.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("%v, and %q holds the lock", err, etcd.owner(name))
		}
	})
}

// That the API server refuses a second try does not say what becomes of the first: it may happen yet. Both grants are ended.
func TestARefusalAfterALostAnswerLeavesTheHandOffUnknown(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, running *engine.Engine) {
		request := by("a")
		request.TTL = time.Hour
		acquire(t, running, request)
		answers := queued(t, running, waiting("b", time.Hour))
		var late *v1alpha1.Lock
		etcd.inject(faults{before: func(verb string) error {
			if verb != "update" {
				return nil
			}
			if late == nil {
				late = etcd.sent()
				return errLostAnswer
			}
			return apierrors.NewForbidden(v1alpha1.Resource("locks"), name, errors.New("policy"))
		}})
		began := time.Now()
		if err := running.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("told %v", err)
		}
		wantQuick(t, began, "the release")
		etcd.inject(faults{})
		if _, err := etcd.Update(t.Context(), late, metav1.UpdateOptions{}); err == nil {
			passOrphanWindow()
		}
		passOrphanWindow()
		if got := <-answers; got.err != nil || etcd.owner(name) != "b" {
			t.Errorf("the waiter is told %v, and %q holds the lock", got.err, etcd.owner(name))
		}
	})
}

// A waiter that leaves while the hand-off to it is looked for may be granted the lock: that another has it is not known.
func TestAWaiterThatLeavesDuringAnUnansweredHandOffIsToldSo(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, running *engine.Engine) {
		acquire(t, running, by("a"))
		answers := make(chan answer, 1)
		calling, hangUp := context.WithCancel(t.Context())
		queueUp(calling, t, running, waiting("b", time.Hour), answers)
		etcd.inject(faults{before: always(errLostAnswer)})
		go func() { _ = running.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}) }()
		pass(time.Second)
		hangUp()
		if got := <-answers; !errors.Is(got.err, lock.ErrUnavailable) {
			t.Errorf("the caller is told %v", got.err)
		}
		pass(10 * time.Second)
	})
}

// A proxy may repeat a hand-off, and pass on the conflict of the second with the first.
func TestAConflictThatCannotBeReadBackLeavesNoGrant(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, running *engine.Engine) {
		acquire(t, running, by("a"))
		answers := make(chan answer, 1)
		request := waiting("b", 2*time.Second)
		request.TTL = time.Hour
		queueUp(t.Context(), t, running, request, answers)
		etcd.inject(faults{after: func(verb string) error {
			if verb != "update" {
				return nil
			}
			etcd.inject(faults{before: always(errLostAnswer)})
			return apierrors.NewConflict(v1alpha1.Resource("locks"), name, errors.New("changed"))
		}})
		if err := running.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("told %v", err)
		}
		if got := <-answers; !errors.Is(got.err, lock.ErrUnavailable) {
			t.Errorf("the waiter is told %v", got.err)
		}
		etcd.inject(faults{})
		passOrphanWindow()
		etcd.mustBeFree(t)
	})
}
