package expiry

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/audit/audittest"
	"forrst.dev/lock-operator/lock/lockevents"
)

// A replica that has lost the leadership may not know it yet, so two can delete the same lock at once.
func TestOneOfTwoReapersHasEndedTheLock(t *testing.T) {
	for name, test := range map[string]struct {
		// isLost says that the first delete happens and is not answered.
		isLost bool
	}{
		"both are answered": {},
		"an answer is lost": {isLost: true},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			start := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
			stored := kept("k", time.Minute, start)
			stored.UID = "uid"
			cluster := fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored).Build()
			request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(stored)}
			shown := &v1alpha1.Lock{}
			if err := cluster.Get(t.Context(), request.NamespacedName, shown); err != nil {
				t.Fatal(err)
			}
			var records audittest.Recorder
			recorder := events.NewFakeRecorder(10)
			// replica returns one whose cache shows the lock for as long as isBehind says.
			isBehind := true
			replica := func(remove func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error) *Reconciler {
				return &Reconciler{
					Client: interceptor.NewClient(cluster, interceptor.Funcs{
						Get: func(ctx context.Context, cluster client.WithWatch, name client.ObjectKey, object client.Object, options ...client.GetOption) error {
							if !isBehind {
								return cluster.Get(ctx, name, object, options...)
							}
							shown.DeepCopyInto(object.(*v1alpha1.Lock))
							return nil
						},
						Delete: remove,
					}),
					Clock: clocktesting.NewFakeClock(start.Add(time.Hour)), Leadership: leadership.Always(),
					Audit: &records, Events: &lockevents.Reporter{Recorder: recorder},
				}
			}
			reconcile := func(of *Reconciler) error {
				_, err := of.Reconcile(t.Context(), request)
				return err
			}
			second := replica(nil)
			first := replica(func(ctx context.Context, cluster client.WithWatch, object client.Object, options ...client.DeleteOption) error {
				if !test.isLost {
					if err := reconcile(second); err != nil {
						t.Errorf("the second: %v", err)
					}
					return cluster.Delete(ctx, object, options...)
				}
				if err := cluster.Delete(ctx, object, options...); err != nil {
					t.Error(err)
				}
				if err := reconcile(second); err != nil {
					t.Errorf("the second: %v", err)
				}
				return errors.New("EOF")
			})
			if err := reconcile(first); (err != nil) != test.isLost {
				t.Errorf("the first: %v", err)
			}
			isBehind = false
			for _, each := range []*Reconciler{first, second, first} {
				if err := reconcile(each); err != nil {
					t.Error(err)
				}
			}
			if err := cluster.Get(t.Context(), request.NamespacedName, &v1alpha1.Lock{}); !apierrors.IsNotFound(err) {
				t.Errorf("the lock is there: %v", err)
			}
			if made := records.All(); len(made) != 1 || made[0].Event != audit.Expired || made[0].Reason != audit.Reaped || made[0].Unconfirmed != test.isLost {
				t.Errorf("records %+v, want that of one reaper", made)
			}
			if len(recorder.Events) != 1 {
				t.Fatalf("%d Events, want that of one reaper", len(recorder.Events))
			}
			if told := <-recorder.Events; !strings.Contains(told, lockevents.ReasonExpired) {
				t.Errorf("told %q", told)
			}
		})
	}
}
