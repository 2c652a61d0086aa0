package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// admitting is an etcd behind the admission of Locks.
type admitting struct {
	*etcd
	user   string
	limits rules.Limits
	// reasons are those that stood on the locks that were deleted, as the audit records them.
	reasons []string
}

// startAdmitted returns an engine whose writes pass the admission.
func startAdmitted(t *testing.T, behind *admitting) *engine.Engine {
	t.Helper()
	return startWith(t, engine.Options{
		Objects:  func(string) engine.Objects { return behind },
		Informer: behind, Limits: rules.DefaultLimits(), IsAdmitted: true, ClockSkewAllowance: time.Second,
	})
}

func newAdmitting() *admitting {
	return &admitting{etcd: newEtcd(), user: "worker", limits: rules.DefaultLimits()}
}

func (a *admitting) Create(ctx context.Context, object *v1alpha1.Lock, options metav1.CreateOptions) (*v1alpha1.Lock, error) {
	admitted, _, err := rules.AdmitCreate(object, rules.User{Name: a.user}, a.limits, time.Now())
	if err != nil {
		return nil, refusal(object, err)
	}
	return a.etcd.Create(ctx, admitted, options)
}

func (a *admitting) Update(ctx context.Context, object *v1alpha1.Lock, options metav1.UpdateOptions) (*v1alpha1.Lock, error) {
	old := a.stored(object.Name)
	if old == nil {
		return a.etcd.Update(ctx, object, options)
	}
	change := rules.Change{Old: old, Updated: object, User: rules.User{Name: a.user}}
	admitted, _, err := rules.AdmitUpdate(change, a.limits, time.Now(), time.Second)
	if err != nil {
		return nil, refusal(object, err)
	}
	return a.etcd.Update(ctx, admitted, options)
}

func (a *admitting) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	old := a.stored(name)
	err := a.etcd.Delete(ctx, name, options)
	if err == nil && old != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.reasons = append(a.reasons, old.Annotations[v1alpha1.ForceReleaseReasonAnnotation])
	}
	return err
}

// stored returns the object under the name, or nil.
func (e *etcd) stored(name string) *v1alpha1.Lock {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.objects[name].DeepCopy()
}

// refusal is the answer of the admission, as the API server passes it on.
func refusal(object *v1alpha1.Lock, err error) error {
	if invalid, ok := errors.AsType[*rules.InvalidError](err); ok {
		return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("Lock").GroupKind(), object.Name, invalid.Problems)
	}
	if errors.Is(err, rules.ErrHeld) {
		return refusedAsHeld(object.Name, err)
	}
	return apierrors.NewConflict(v1alpha1.Resource("locks"), object.Name, err)
}

// refusedAsHeld is the answer of the admission to a change of a lock that is held.
func refusedAsHeld(name string, err error) error {
	status := apierrors.NewForbidden(v1alpha1.Resource("locks"), name, err)
	status.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: v1alpha1.CauseTypeHeld}}
	return status
}

func TestAnAdmittedLateWriteIsCleanedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		behind := newAdmitting()
		engine := startAdmitted(t, behind)
		behind.inject(outage("create"))
		request := by("a")
		request.TTL = time.Hour
		if _, err := engine.Acquire(t.Context(), "default", request); !errors.Is(err, lock.ErrUnavailable) {
			t.Fatalf("got %v, want ErrUnavailable", err)
		}
		late := behind.sent()
		behind.inject(faults{})
		pass(2 * time.Second)
		if _, err := behind.etcd.Create(t.Context(), late, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		passOrphanWindow()
		behind.mustBeFree(t)
	})
}

// A program that comes back after a crash may use the owner token that it used before.
func TestAnAdmittedTakeOverUnderTheSameOwnerToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := startAdmitted(t, newAdmitting())
		first := acquire(t, engine, by("a"))
		pass(first.Spec.TTL.Duration + 2*time.Second)
		second := acquire(t, engine, by("a"))
		before, err := first.FencingToken()
		if err != nil {
			t.Fatal(err)
		}
		after, err := second.FencingToken()
		if err != nil || after <= before {
			t.Errorf("token %d after %d, error %v", after, before, err)
		}
	})
}

func TestAnAdmittedHandOffUnderTheSameOwnerToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		behind := newAdmitting()
		engine := startAdmitted(t, behind)
		first := acquire(t, engine, by("a"))
		answers := queued(t, engine, waiting("a", time.Hour))
		release(t, engine, "a")
		got := <-answers
		before, err := first.FencingToken()
		if err != nil {
			t.Fatal(err)
		}
		if got.err != nil || got.token <= before {
			t.Errorf("token %d after %d, error %v", got.token, before, got.err)
		}
		release(t, engine, "a")
	})
}
