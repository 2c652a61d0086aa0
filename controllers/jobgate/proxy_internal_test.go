package jobgate

import (
	"net/http"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// byProxy refuses a write with what a proxy answers by itself.
func byProxy(code int) func(client.Object, bool) error {
	return func(client.Object, bool) error {
		return apierrors.NewGenericServerResponse(code, http.MethodPatch, batchv1.Resource("jobs"), "a", "by a proxy", 0, true)
	}
}

// No event follows an answer of a proxy that would have the write tried again.
func TestAWriteThatAProxyAnswersIsTriedAgain(t *testing.T) {
	for _, code := range []int{http.StatusNotFound, http.StatusConflict} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			w := newWorld(t)
			w.grant(w.create("a"))
			w.refuse = byProxy(code)
			w.wantError()
		})
		t.Run(http.StatusText(code)+", the finalizer", func(t *testing.T) {
			w := newWorld(t)
			ended := w.create("a")
			w.complete(ended, false)
			w.refuse = byProxy(code)
			if _, err := (finalizerReconciler{w.reconciler}).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(ended)}); err == nil {
				t.Error("it is left without an error")
			}
		})
	}
}

// What a proxy refuses does not fail a Job, which leaves the lock to others for a while.
func TestAStartThatAProxyRefusesIsTriedAgain(t *testing.T) {
	for _, code := range []int{http.StatusForbidden, http.StatusUnprocessableEntity} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			w := newWorld(t)
			stuck := w.create("a", skip)
			w.create("b")
			w.grant(stuck)
			w.refuse = refuseStart(byProxy(code)(stuck, false))
			w.next()
			if !slices.Equal(w.starts, []string{"b"}) || len(w.read(stuck).Status.Conditions) > 0 {
				t.Errorf("started %v; the conditions of the other Job are %v", w.starts, w.read(stuck).Status.Conditions)
			}
		})
	}
}
