package freeing_test

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/freeing"
)

func newLock() *v1alpha1.Lock {
	acquired := v1alpha1.NewTimestamp(time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC))
	return &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "k", UID: "1"},
		Spec:       v1alpha1.LockSpec{Key: "k", Holder: "ann", AcquireTime: &acquired, RenewTime: &acquired},
	}
}

// cluster has the lock, and calls before just before each delete.
func cluster(t *testing.T, before func(client.Client)) (cluster client.Client, shown *v1alpha1.Lock) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	made := fake.NewClientBuilder().WithScheme(scheme).WithObjects(newLock()).WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(ctx context.Context, inner client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			before(inner)
			return inner.Delete(ctx, object, options...)
		},
	}).Build()
	shown = &v1alpha1.Lock{}
	if err := made.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "k"}, shown); err != nil {
		t.Fatal(err)
	}
	return made, shown
}

func change(t *testing.T, cluster client.Client, how func(*v1alpha1.Lock)) {
	t.Helper()
	current := &v1alpha1.Lock{}
	if err := cluster.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "k"}, current); err != nil {
		t.Fatal(err)
	}
	how(current)
	if err := cluster.Update(t.Context(), current); err != nil {
		t.Fatal(err)
	}
}

func left(t *testing.T, cluster client.Client) *v1alpha1.Lock {
	t.Helper()
	current := &v1alpha1.Lock{}
	err := cluster.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "k"}, current)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return current
}

func renew(lock *v1alpha1.Lock) {
	next := v1alpha1.NewTimestamp(lock.Spec.RenewTime.Add(time.Second))
	lock.Spec.RenewTime = &next
}

func takeOver(lock *v1alpha1.Lock) {
	next := v1alpha1.NewTimestamp(lock.Spec.AcquireTime.Add(time.Second))
	lock.Spec.AcquireTime, lock.Spec.Holder = &next, "bob"
	delete(lock.Annotations, v1alpha1.ForceReleaseReasonAnnotation)
}

func TestEndsWhatWasShown(t *testing.T) {
	for _, reason := range []string{"", "a reason"} {
		cluster, shown := cluster(t, func(client.Client) {})
		if err := (freeing.Order{Shown: shown, Reason: reason}).Carry(t.Context(), cluster); err != nil {
			t.Errorf("with the reason %q: %v", reason, err)
		}
		if left(t, cluster) != nil {
			t.Errorf("with the reason %q the lock is left", reason)
		}
	}
}

func TestEndsALockThatIsRenewedMeanwhile(t *testing.T) {
	renewals := 3
	cluster, shown := cluster(t, func(inner client.Client) {
		renewals--
		if renewals >= 0 {
			change(t, inner, renew)
		}
	})
	if err := (freeing.Order{Shown: shown, Reason: "why"}).Carry(t.Context(), cluster); err != nil {
		t.Error(err)
	}
	if left(t, cluster) != nil {
		t.Error("the lock is left")
	}
}

func TestGivesUpOnALockThatAlwaysChanges(t *testing.T) {
	cluster, shown := cluster(t, func(inner client.Client) { change(t, inner, renew) })
	if err := (freeing.Order{Shown: shown}).Carry(t.Context(), cluster); !errors.Is(err, freeing.ErrBusy) {
		t.Error(err)
	}
}

func TestLeavesTheNextGrantAlone(t *testing.T) {
	for name, between := range map[string]struct{ before, during func(*v1alpha1.Lock) }{
		"granted while the question was asked": {before: takeOver},
		"granted before the delete":            {during: takeOver},
	} {
		for _, reason := range []string{"", "a reason"} {
			cluster, shown := cluster(t, func(inner client.Client) {
				if between.during != nil {
					change(t, inner, between.during)
				}
			})
			if between.before != nil {
				change(t, cluster, between.before)
			}
			if err := (freeing.Order{Shown: shown, Reason: reason}).Carry(t.Context(), cluster); !errors.Is(err, freeing.ErrAnotherGrant) {
				t.Errorf("%s, with the reason %q: %v", name, reason, err)
			}
			switch current := left(t, cluster); {
			case current == nil:
				t.Errorf("%s: the lock of the next holder was ended", name)
			case current.Annotations[v1alpha1.ForceReleaseReasonAnnotation] != "":
				t.Errorf("%s: the reason is on the lock of the next holder", name)
			}
		}
	}
}

func TestSaysThatALockHasGone(t *testing.T) {
	cluster, shown := cluster(t, func(client.Client) {})
	if err := cluster.Delete(t.Context(), shown); err != nil {
		t.Fatal(err)
	}
	for _, reason := range []string{"", "a reason"} {
		if err := (freeing.Order{Shown: shown, Reason: reason}).Carry(t.Context(), cluster); !errors.Is(err, freeing.ErrGone) {
			t.Errorf("with the reason %q: %v", reason, err)
		}
	}
}

func TestDryRunsStoreNothing(t *testing.T) {
	for _, reason := range []string{"", "a reason"} {
		cluster, shown := cluster(t, func(client.Client) {})
		if err := (freeing.Order{Shown: shown, Reason: reason, IsDryRun: true}).Carry(t.Context(), cluster); err != nil {
			t.Error(err)
		}
		if current := left(t, cluster); current == nil || len(current.Annotations) > 0 {
			t.Errorf("with the reason %q it is %v", reason, current)
		}
	}
}

// The reason must not stay on a lock that goes on.
func TestGoesOnAfterTheReasonWasWritten(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	made := fake.NewClientBuilder().WithScheme(scheme).WithObjects(newLock()).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, inner client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			defer cancel()
			return inner.Patch(ctx, object, patch, options...)
		},
		Delete: func(ctx context.Context, inner client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return inner.Delete(ctx, object, options...)
		},
	}).Build()
	shown := left(t, made)
	if err := (freeing.Order{Shown: shown, Reason: "why"}).Carry(ctx, made); err != nil {
		t.Error(err)
	}
	if left(t, made) != nil {
		t.Error("the lock is left with the reason")
	}
}
