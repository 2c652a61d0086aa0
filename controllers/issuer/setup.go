package issuer

import (
	"context"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"forrst.dev/lock-operator/controllers/leadership"
)

// maxBackoff bounds the delay before a failed pass is repeated.
const maxBackoff = time.Minute

// SetupWithManager adds the reconciler to the manager, which runs it when this replica begins to lead, when a
// webhook configuration changes, and after a while.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	only := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: r.options.Namespace, Name: r.options.Authority}}
	enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{only} })
	return ctrl.NewControllerManagedBy(manager).
		Named("certificates").
		Watches(&admissionregistrationv1.MutatingWebhookConfiguration{}, enqueue).
		Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, enqueue).
		WatchesRawSource(source.Func(func(ctx context.Context, queue leadership.Queue) error {
			go leadership.Enqueue(ctx, r.options.Leadership, clock.RealClock{}, queue, func(context.Context) ([]reconcile.Request, error) {
				return []reconcile.Request{only}, nil
			})
			return nil
		})).
		WithOptions(controller.Options{
			NeedLeaderElection:    new(false),
			ReconciliationTimeout: timeout,
			RateLimiter:           workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minInterval, maxBackoff),
		}).
		Complete(r)
}
