package leadership

import (
	"context"
	"errors"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
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
	keys := informer.GetStore().ListKeys()
	requests := make([]reconcile.Request, len(keys))
	for index, key := range keys {
		name, err := cache.ParseObjectName(key)
		if err != nil {
			return nil, err
		}
		requests[index].NamespacedName = name.AsNamespacedName()
	}
	return requests, nil
}
