package installation

import (
	"context"
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
)

func TestTry(t *testing.T) {
	backend := locktest.New()
	token, err := Try(t.Context(), backend, "payments")
	if err != nil || token <= 0 {
		t.Fatalf("got the token %d and %v", token, err)
	}
	key := v1alpha1.NewFullKey(v1alpha1.ScopeGlobal, "", trialKey)
	if _, err := backend.Get(t.Context(), "payments", key); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("after the trial, the lock is there: %v", err)
	}
	again, err := Try(t.Context(), backend, "payments")
	if err != nil || again <= token {
		t.Errorf("a second trial got the token %d and %v", again, err)
	}
}

func TestTryWithoutAnAnswer(t *testing.T) {
	backend := locktest.New()
	backend.SetUnavailable(true)
	if _, err := Try(t.Context(), backend, "payments"); !errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// judge is an API server that judges new Locks.
type judge struct {
	client.Writer
	err error
}

func (j *judge) Create(_ context.Context, object client.Object, options ...client.CreateOption) error {
	var asked client.CreateOptions
	asked.ApplyOptions(options)
	if !slices.Equal(asked.DryRun, []string{metav1.DryRunAll}) {
		return errors.New("the Lock would be stored")
	}
	written, _ := object.(*v1alpha1.Lock)
	if written.Namespace != "payments" || written.Spec.FullKey().ObjectName() != written.Name || written.Name == v1alpha1.FullKeyOf(trialKey).ObjectName() {
		return errors.New("the Lock has the name " + written.Name)
	}
	return j.err
}

func TestTryWrite(t *testing.T) {
	unreached := apierrors.NewInternalError(errors.New(`failed calling webhook "lock.forrst.dev"`))
	for _, want := range []error{nil, unreached} {
		if err := TryWrite(t.Context(), &judge{err: want}, "payments"); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}
