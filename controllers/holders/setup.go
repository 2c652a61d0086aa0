package holders

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/controllers/reaper"
)

// holderUIDIndex finds locks by the UID of their holderRef.
const holderUIDIndex = "spec.holderRef.uid"

// SetupWithManager adds the reconciler to the manager.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	watcher, err := client.NewWithWatch(manager.GetConfig(), client.Options{
		HTTPClient: manager.GetHTTPClient(), Scheme: manager.GetScheme(), Mapper: manager.GetRESTMapper(),
	})
	if err != nil {
		return fmt.Errorf("client that watches holders: %w", err)
	}
	endedPods, err := newEndedPods(manager)
	if err != nil {
		return fmt.Errorf("cache of the Pods that have ended: %w", err)
	}
	r.endedPods = endedPods
	err = manager.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.Lock{}, holderUIDIndex, holderUID)
	if err != nil {
		return fmt.Errorf("index of the locks by holder: %w", err)
	}
	informer, err := manager.GetCache().GetInformer(context.Background(), &v1alpha1.Lock{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("informer of locks: %w", err)
	}
	locks, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return fmt.Errorf("the informer of locks is a %T, which has no store", informer)
	}
	var queue leadership.Queue
	r.watches = newHolderWatches(watcher, r.Clock, maxHolderWatches, r.Leadership.IsLeader,
		func(lock types.NamespacedName) { queue.Add(reconcile.Request{NamespacedName: lock}) })
	if err := manager.Add(endedPods); err != nil {
		return err
	}
	if err := manager.Add(r.watches); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(manager).
		Named("lock-holders").
		For(&v1alpha1.Lock{}, builder.WithPredicates(namesHolder())).
		WatchesRawSource(source.Func(func(_ context.Context, own leadership.Queue) error {
			queue = own // before the first reconcile
			return nil
		})).
		WatchesRawSource(source.Func(leadership.EnqueueLocks(r.Leadership, locks))).
		WatchesRawSource(source.Kind(endedPods, podMetadata(), handler.TypedEnqueueRequestsFromMapFunc(r.locksOf))).
		WithOptions(reaper.ControllerOptions()).
		Complete(r)
}

func holderUID(object client.Object) []string {
	lock, ok := object.(*v1alpha1.Lock)
	if !ok || lock.Spec.HolderRef == nil {
		return nil
	}
	return []string{string(lock.Spec.HolderRef.UID)}
}

// locksOf returns the locks of a Pod that has ended, and those of its Job. A Pod that is gone
// from the cache had ended before; its locks were enqueued then.
func (r *Reconciler) locksOf(ctx context.Context, pod *metav1.PartialObjectMetadata) []reconcile.Request {
	var requests []reconcile.Request
	for _, uid := range []string{string(pod.UID), pod.Labels[batchv1.ControllerUidLabel]} {
		if uid == "" {
			continue
		}
		var locks v1alpha1.LockList
		err := r.Client.List(ctx, &locks, client.InNamespace(pod.Namespace), client.MatchingFields{holderUIDIndex: uid}, client.UnsafeDisableDeepCopy)
		if err != nil {
			logf.FromContext(ctx).Error(err, "Could not look up the Locks of a Pod that has ended", "pod", client.ObjectKeyFromObject(pod))
			return nil
		}
		for index := range locks.Items {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&locks.Items[index])})
		}
	}
	return requests
}

// namesHolder selects the events of locks that have, or had, a holderRef.
func namesHolder() predicate.Predicate {
	names := func(object client.Object) bool { return len(holderUID(object)) > 0 }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return names(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return names(e.ObjectOld) || names(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return names(e.Object) },
	}
}
