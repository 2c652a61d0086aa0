package controllers

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"forrst.dev/lock-operator/api/v1alpha1"
)

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// enqueueAllWhenLeading makes up for the events that passed while another replica
// led. What it starts ends with ctx, which is the controller's.
func enqueueAllWhenLeading(leadership *Leadership, locks client.Reader) func(context.Context, requestQueue) error {
	return func(ctx context.Context, queue requestQueue) error {
		gained := leadership.Gained()
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-gained:
				}
				// The cache answers as soon as it has caught up, so that an error is the end of
				// ctx or of the cache.
				if err := enqueueAll(ctx, locks, queue); err != nil && ctx.Err() == nil {
					logf.FromContext(ctx).Error(err, "Could not list the Locks after gaining the leadership; what has become of them before is noticed when they change")
				}
			}
		}()
		return nil
	}
}

func enqueueAll(ctx context.Context, reader client.Reader, queue requestQueue) error {
	var locks v1alpha1.LockList
	if err := reader.List(ctx, &locks, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for index := range locks.Items {
		queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&locks.Items[index])})
	}
	return nil
}
