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

// Leadership says whether this replica acts.
type Leadership interface {
	// IsLeader reports whether it does, as far as it knows.
	IsLeader() bool
	// Gained returns a channel that has a value after each time that leadership was
	// gained, and now if this replica leads already.
	Gained() <-chan struct{}
}

// Queue is that of a controller.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// WhenLeading adds what every returns to the queue each time that leadership is gained. It
// makes up for the events that passed while another replica led, so if every fails, it is
// called again until that succeeds or leadership is lost. It returns when ctx ends.
func Enqueue(ctx context.Context, leadership Leadership, clock clock.Clock, queue Queue, every func(context.Context) ([]reconcile.Request, error)) {
	gained := leadership.Gained()
	for {
		select {
		case <-ctx.Done():
			return
		case <-gained:
		}
		requests := listed(ctx, leadership, clock, every)
		for _, request := range requests {
			queue.Add(request)
		}
	}
}

// listed returns what every returns when it succeeds, or nil if that is not awaited any
// more.
func listed(ctx context.Context, leadership Leadership, clock clock.Clock, every func(context.Context) ([]reconcile.Request, error)) []reconcile.Request {
	pause := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 7, Cap: 5 * time.Second, Jitter: 0.1}.DelayFunc()
	for {
		requests, err := every(ctx)
		if err == nil {
			return requests
		}
		if ctx.Err() != nil || !leadership.IsLeader() {
			return nil
		}
		logf.FromContext(ctx).Error(err, "Could not list what to look at after gaining the leadership, trying again")
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
