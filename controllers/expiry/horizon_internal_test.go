package expiry

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/lock/rules"
)

// A lock may be renewed after it was enqueued, and all events are enqueued while the clock is stale.
func TestALockThatEndsLaterLeavesTheQueue(t *testing.T) {
	start := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ ttl, want time.Duration }{
		"within the horizon": {ttl: horizon, want: horizon},
		"beyond it":          {ttl: horizon + time.Second, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			lock := rules.Grant("a", rules.Acquisition{Key: "k", Owner: "o", Holder: "alice", TTL: test.ttl}, rules.DefaultLimits(), start)
			reconciler := &Reconciler{
				Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(lock).Build(),
				Clock:  clocktesting.NewFakeClock(start), Leadership: leadership.Always(),
			}
			got, err := reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(lock)})
			if err != nil || got.RequeueAfter != test.want {
				t.Errorf("got %v and %v, want it again after %s", got, err, test.want)
			}
		})
	}
}
