package expiry

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/audit/audittest"
)

// A reaper ends a lock that has expired by any clock and no other, and has one record if it did.
func TestAReaperEndsExpiredLocksAlone(t *testing.T) {
	const ttl = 3 * time.Minute
	refusal := apierrors.NewForbidden(v1alpha1.Resource("locks"), "k", errors.New("no"))
	remove := func(ctx context.Context, cluster client.Client, lock *v1alpha1.Lock) error {
		return cluster.Delete(ctx, lock)
	}
	start := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		at         time.Duration // since the lock was acquired
		isFollower bool
		// meanwhile is what another client does before the first delete arrives, which fails with failure.
		meanwhile func(context.Context, client.Client, *v1alpha1.Lock) error
		failure   error
		// isRemovedThen says that another client deletes the lock after the first look.
		isRemovedThen bool
		requeue       time.Duration
		isLeft        bool
		records       int
	}{
		"far from its end":        {at: 0, isLeft: true}, // A sweep finds it.
		"before its end":          {at: ttl - time.Second, requeue: 2 * time.Second, isLeft: true},
		"within the allowance":    {at: ttl + time.Second - 1, requeue: 1, isLeft: true},
		"after the allowance":     {at: ttl + time.Second, records: 1},
		"without the leadership":  {at: 2 * ttl, isFollower: true, isLeft: true},
		"deleted meanwhile":       {at: 2 * ttl, meanwhile: remove},
		"the delete lost":         {at: 2 * ttl, failure: errors.New("EOF"), records: 1},
		"the delete refused":      {at: 2 * ttl, failure: refusal, records: 1},
		"refused, and gone since": {at: 2 * ttl, failure: refusal, isRemovedThen: true},
		"renewed meanwhile": {at: 2 * ttl, isLeft: true, meanwhile: func(ctx context.Context, cluster client.Client, lock *v1alpha1.Lock) error {
			lock.Spec.ExpireTime = new(v1alpha1.NewTimestamp(start.Add(time.Hour)))
			return cluster.Update(ctx, lock)
		}},
		"released and acquired again": {at: 2 * ttl, isLeft: true, meanwhile: func(ctx context.Context, cluster client.Client, lock *v1alpha1.Lock) error {
			if err := cluster.Delete(ctx, lock); err != nil {
				return err
			}
			return cluster.Create(ctx, kept("k", time.Hour, start))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			stored := kept("k", ttl, start)
			cluster := fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored).Build()
			request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(stored)}
			var records audittest.Recorder
			isFirst := true
			reaper := &Reconciler{
				Client: interceptor.NewClient(cluster, interceptor.Funcs{
					Delete: func(ctx context.Context, cluster client.WithWatch, object client.Object, options ...client.DeleteOption) error {
						if wasFirst := isFirst; wasFirst {
							isFirst = false
							if test.meanwhile != nil {
								if err := test.meanwhile(ctx, cluster, object.DeepCopyObject().(*v1alpha1.Lock)); err != nil {
									t.Error(err)
								}
							}
							if test.failure != nil {
								return test.failure
							}
						}
						return cluster.Delete(ctx, object, options...)
					},
				}),
				Clock: clocktesting.NewFakeClock(start.Add(test.at)), ClockSkewAllowance: time.Second, Leadership: leadership.Always(), Audit: &records,
			}
			if test.isFollower {
				reaper.Leadership = &leadership.Election{}
			}
			result, err := reaper.Reconcile(t.Context(), request)
			if (err != nil) != (test.failure != nil) || result.RequeueAfter != test.requeue || err != nil && len(records.All()) > 0 {
				t.Errorf("at first: %+v, %v, records %+v", result, err, records.All())
			}
			if test.isRemovedThen {
				if err := cluster.Delete(t.Context(), stored); err != nil {
					t.Error(err)
				}
			}
			for range 2 {
				if _, err := reaper.Reconcile(t.Context(), request); err != nil {
					t.Error(err)
				}
			}
			if err := cluster.Get(t.Context(), request.NamespacedName, &v1alpha1.Lock{}); apierrors.IsNotFound(err) == test.isLeft {
				t.Errorf("the lock: %v", err)
			}
			made := records.All()
			if len(made) != test.records {
				t.Fatalf("records %+v, want %d", made, test.records)
			}
			for _, got := range made {
				if got.Event != audit.Expired || got.Reason != audit.Reaped || got.Via != audit.Controller || got.Actor != "" || got.Holder != "alice" ||
					got.FencingToken != 999 || *got.HeldSeconds != ttl.Seconds() || got.Unconfirmed {
					t.Errorf("recorded %+v", got)
				}
			}
		})
	}
}
