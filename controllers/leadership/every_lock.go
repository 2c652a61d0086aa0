package leadership

import (
	"context"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// EnqueueLocks returns the start of a source that enqueues every lock each time that this
// replica becomes the leader. Its goroutine ends with the context of the controller.
func EnqueueLocks(leadership *Election, locks client.Reader) func(context.Context, Queue) error {
	return func(ctx context.Context, queue Queue) error {
		go Enqueue(ctx, leadership, clock.RealClock{}, queue, func(ctx context.Context) ([]reconcile.Request, error) {
			return everyLock(ctx, locks)
		})
		return nil
	}
}

func everyLock(ctx context.Context, reader client.Reader) ([]reconcile.Request, error) {
	var locks v1alpha1.LockList
	if err := reader.List(ctx, &locks, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	requests := make([]reconcile.Request, len(locks.Items))
	for index := range locks.Items {
		requests[index].NamespacedName = client.ObjectKeyFromObject(&locks.Items[index])
	}
	return requests, nil
}
