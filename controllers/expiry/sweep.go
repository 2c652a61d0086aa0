package expiry

import (
	"context"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/lock/rules"
)

// A lock has an entry in the queue only if it can be deleted within the horizon: an idle lock costs
// nothing. A sweep over all locks of the cache finds those that have come that near, and is early
// enough even if one is left out.
const (
	horizon     = 2 * time.Minute
	sweepPeriod = horizon / 4
)

// sweep enqueues the locks that can be deleted soon: every sweepPeriod, and each time that this replica
// becomes the leader. It returns when ctx ends.
func (r *Reconciler) sweep(ctx context.Context, timers clock.WithTicker, queue leadership.Queue) {
	ticker := timers.NewTicker(sweepPeriod)
	defer ticker.Stop()
	gained := r.Leadership.Gained()
	for {
		select {
		case <-ctx.Done():
			return
		case <-gained:
		case <-ticker.C():
		}
		if !r.Leadership.IsLeader() {
			continue
		}
		for _, request := range r.soon() {
			queue.Add(request)
		}
	}
}

// soon returns the locks that can be deleted within the horizon.
func (r *Reconciler) soon() []reconcile.Request {
	var requests []reconcile.Request
	now, grace := r.Clock.Now(), r.grace()
	for _, lock := range r.all() {
		if rules.UntilReclaimable(lock, now, grace) <= horizon {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(lock)})
		}
	}
	return requests
}

// changesThatMatter selects the events of locks that can be deleted soon. The end of a lock matters if
// this replica has tried to delete it and was not answered.
func (r *Reconciler) changesThatMatter() predicate.Predicate {
	isSoon := func(object client.Object) bool {
		lock, ok := object.(*v1alpha1.Lock)
		return !ok || r.isOpen(object) ||
			rules.UntilReclaimable(lock, r.Clock.Now(), r.grace()) <= horizon
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return isSoon(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return isSoon(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return r.isOpen(e.Object) },
	}
}

func (r *Reconciler) isOpen(object client.Object) bool {
	return r.reaper.RecheckAfter(client.ObjectKeyFromObject(object)) > 0
}
