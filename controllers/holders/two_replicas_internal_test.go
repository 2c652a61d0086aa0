package holders

import (
	"context"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/audit/audittest"
	"forrst.dev/lock-operator/lock/rules"
)

// A replica that has lost the leadership may not know it yet, so two can find the same holder ended at once.
func TestOneOfTwoReplicasHasEndedTheLockOfAHolder(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for name, delay := range map[string]time.Duration{"at once": 0, "after a delay": time.Minute} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC))
			stored := rules.Grant("default", rules.Acquisition{
				Key: "k", Owner: "o", Holder: "alice", TTL: time.Hour, ReleaseDelay: delay,
				HolderRef: &v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: "worker-0", UID: "pod-1"},
			}, rules.DefaultLimits(), clock.Now())
			stored.UID = "uid"
			cluster := fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored).Build()
			var records audittest.Recorder
			recorder := events.NewFakeRecorder(10)
			replica := func(writes interceptor.Funcs) *Reconciler {
				return &Reconciler{Client: interceptor.NewClient(cluster, writes), LiveReader: cluster, Clock: clock, Events: recorder, Audit: &records}
			}
			// both has both replicas see the lock as it is, and the second one write before the first one's write arrives.
			both := func() {
				t.Helper()
				shown := &v1alpha1.Lock{}
				if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(stored), shown); err != nil {
					t.Fatal(err)
				}
				end := holderEnd{ref: *shown.Spec.HolderRef, how: howDeleted}
				act := func(of *Reconciler) {
					if _, err := of.releaseAfterDelay(t.Context(), shown.DeepCopy(), end); err != nil {
						t.Error(err)
					}
				}
				second := replica(interceptor.Funcs{})
				act(replica(interceptor.Funcs{
					Update: func(ctx context.Context, cluster client.WithWatch, object client.Object, options ...client.UpdateOption) error {
						act(second)
						return cluster.Update(ctx, object, options...)
					},
					Delete: func(ctx context.Context, cluster client.WithWatch, object client.Object, options ...client.DeleteOption) error {
						act(second)
						return cluster.Delete(ctx, object, options...)
					},
				}))
			}
			wantEvent := func(reason string) {
				t.Helper()
				if len(recorder.Events) != 1 {
					t.Fatalf("%d Events, want that of one replica", len(recorder.Events))
				}
				if told := <-recorder.Events; !strings.Contains(told, reason) {
					t.Errorf("told %q, want %s", told, reason)
				}
			}
			if delay > 0 {
				both()
				wantEvent(holderEndedReason)
				if made := records.All(); len(made) > 0 {
					t.Errorf("records %+v before the end of the delay", made)
				}
				clock.Step(delay)
			}
			both()
			wantEvent(releasedReason)
			if made := records.All(); len(made) != 1 || made[0].Event != audit.Released || made[0].Reason != audit.HolderGone || made[0].Unconfirmed {
				t.Errorf("records %+v, want that of one replica", made)
			}
			if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(stored), &v1alpha1.Lock{}); !apierrors.IsNotFound(err) {
				t.Errorf("the lock is there: %v", err)
			}
		})
	}
}
