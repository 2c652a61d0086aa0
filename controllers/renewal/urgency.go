package renewal

import (
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/fairqueue"
	"forrst.dev/lock-operator/controllers/leadership"
)

// newQueue returns a constructor of a queue that serves namespaces in turn: the locks of one must not let those of
// another lapse.
func (r *Reconciler) newQueue(store toolscache.Store) func(string, workqueue.TypedRateLimiter[reconcile.Request]) leadership.Queue {
	return func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) leadership.Queue {
		return fairqueue.New(name, limiter, r.urgencyIn(store))
	}
}

// urgencyIn returns how urgent a look at a lock is, as the store of the cache shows it.
func (r *Reconciler) urgencyIn(store toolscache.Store) func(reconcile.Request) fairqueue.Urgency {
	return func(request reconcile.Request) fairqueue.Urgency {
		object, exists, err := store.GetByKey(request.String())
		lock, isLock := object.(*v1alpha1.Lock)
		if err != nil || !exists || !isLock {
			return fairqueue.Start
		}
		return urgencyOf(lock, r.Clock.Now())
	}
}

// urgencyOf puts locks that are about to expire before those that are due, and these before all others.
func urgencyOf(lock *v1alpha1.Lock, now time.Time) fairqueue.Urgency {
	if !isByOperator(lock) || lock.Spec.ExpireTime == nil || lock.Spec.TTL == nil {
		return fairqueue.Start
	}
	switch left, third := lock.Spec.ExpireTime.Sub(now), lock.Spec.TTL.Duration/3; {
	case left < third:
		return fairqueue.Stop
	case left < 2*third+third/5: // It may be due somewhat sooner than after a third.
		return fairqueue.Hold
	}
	return fairqueue.Start
}
