package leadership

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Leadership tells whether this replica leads.
type Leadership interface {
	// IsLeader reports whether this replica leads, as far as it knows.
	IsLeader() bool
	// Gained returns a channel that has a value after each time that leadership was
	// gained, and now if this replica leads already.
	Gained() <-chan struct{}
}

// Queue is the work queue of a controller.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Enqueue adds the requests that list returns to the queue each time that leadership is gained:
// the events that came while another replica led were ignored. If list fails, it is called
// again until it succeeds or leadership is lost. Enqueue returns when ctx ends.
func Enqueue(ctx context.Context, leadership Leadership, clock clock.Clock, queue Queue, list func(context.Context) ([]reconcile.Request, error)) {
	gained := leadership.Gained()
	for {
		select {
		case <-ctx.Done():
			return
		case <-gained:
		}
		requests := listed(ctx, leadership, clock, list)
		for _, request := range requests {
			queue.Add(request)
		}
	}
}

// listed returns the requests of list once it succeeds, or nil if ctx ends or leadership is
// lost before.
func listed(ctx context.Context, leadership Leadership, clock clock.Clock, list func(context.Context) ([]reconcile.Request, error)) []reconcile.Request {
	pause := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 7, Cap: 5 * time.Second, Jitter: 0.1}.DelayFunc()
	for {
		requests, err := list(ctx)
		if err == nil {
			return requests
		}
		if ctx.Err() != nil || !leadership.IsLeader() {
			return nil
		}
		logf.FromContext(ctx).Error(err, "Could not list the objects to reconcile after gaining the leadership, trying again")
		select {
		case <-ctx.Done():
			return nil
		case <-clock.After(pause()):
		}
		if !leadership.IsLeader() {
			return nil
		}
	}
}
