package leadership

import (
	"context"
	"errors"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"forrst.dev/lock-operator/lock/engine/compact"
)

// EnqueueLocks returns the start of a source that enqueues every lock each time that this
// replica becomes the leader. Its goroutine ends with the context of the controller.
func EnqueueLocks(leadership *Election, locks cache.SharedIndexInformer) func(context.Context, Queue) error {
	return func(ctx context.Context, queue Queue) error {
		go Enqueue(ctx, leadership, clock.RealClock{}, queue, func(context.Context) ([]reconcile.Request, error) {
			return everyLock(locks)
		})
		return nil
	}
}

func everyLock(informer cache.SharedIndexInformer) ([]reconcile.Request, error) {
	if !informer.HasSynced() {
		return nil, errors.New("the cache of locks has not caught up with the API server yet")
	}
	locks := compact.All(informer)
	requests := make([]reconcile.Request, len(locks))
	for index, lock := range locks {
		requests[index].NamespacedName = lock.NamespacedName()
	}
	return requests, nil
}
