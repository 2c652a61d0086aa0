package jobgate

import (
	"context"
	"strings"
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// heldUp is an engine whose next release arrives only after something else has happened. It counts the
// releases that were made.
type heldUp struct {
	lock.Backend

	meanwhile func()
	made      int
}

func (h *heldUp) Release(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof) error {
	if meanwhile := h.meanwhile; meanwhile != nil {
		h.meanwhile = nil
		meanwhile()
	}
	err := h.Backend.Release(ctx, namespace, key, proof)
	if err == nil {
		h.made++
	}
	return err
}

// another returns a second process of the operator beside the first: one of them has lost the leadership and does not know
// it yet.
func (w *world) another() *Reconciler {
	w.t.Helper()
	first, stopFirst := w.reconciler, w.stop
	w.stop = func() {}
	w.start()
	second, stopSecond := w.reconciler, w.stop
	w.reconciler = first
	w.stop = func() {
		stopSecond()
		stopFirst()
	}
	return second
}

// The pass has decided to release the lock when another caller ends the same grant.
func TestOneOfTwoEndersHasEndedTheGrantOfAJob(t *testing.T) {
	for by, isForced := range map[string]bool{"by another replica": false, "by force": true} {
		t.Run(by, func(t *testing.T) {
			w, job := started(t)
			second := w.another()
			passOfSecond := func() {
				t.Helper()
				if _, err := second.Reconcile(t.Context(), ctrl.Request{NamespacedName: theLock}); err != nil {
					t.Error(err)
				}
			}
			passOfSecond()
			w.complete(job, false)
			w.told()
			ended := &heldUp{Backend: w.locks}
			ended.meanwhile = func() {
				if isForced {
					if err := w.locks.ForceRelease(t.Context(), space, key, "test"); err != nil {
						t.Error(err)
					}
					ended.made++
				} else {
					passOfSecond()
				}
				w.grantTo("alice")
			}
			w.engine.Backend = ended
			w.pass(1)
			passOfSecond()
			if ended.made != 1 {
				t.Errorf("%d callers have ended the grant", ended.made)
			}
			if held := w.held(); held == nil || held.Spec.Holder != "alice" {
				t.Errorf("the next holder has lost the lock: %v", held)
			}
			for _, each := range []*Reconciler{w.reconciler, second} {
				if each.state(theLock).grant != nil {
					t.Error("the grant is taken for that of the Job")
				}
			}
			if said := strings.Join(w.told(), "\n"); strings.Contains(said, "LockLost") {
				t.Errorf("told %q of a Job that was over", said)
			}
		})
	}
}

// lateRenewals is an engine to whose renewals something happens on the way.
type lateRenewals struct {
	lock.Backend

	happens func()
}

func (l lateRenewals) Renew(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof, ttl time.Duration) (*v1alpha1.Lock, error) {
	l.happens()
	return l.Backend.Renew(ctx, namespace, key, proof, ttl)
}
