package lock

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// lateWriteChecks is how often, over some six seconds, an unanswered write is looked
// for before it is taken not to have happened: the API server may be working on
// it still after its client has given up.
const lateWriteChecks = 7

// orphans ends grants that nobody will release: those that came in after their
// caller had gone or had been told that the service is unavailable. It tries
// until the grant has ended one way or the other, at the latest by its ttl.
type orphans struct {
	queue workqueue.TypedRateLimitingInterface[grant]
	end   func(context.Context, grant) (found bool, err error)
	clock clock.PassiveClock
	log   logr.Logger
}

func newOrphans(end func(context.Context, grant) (bool, error), clock clock.WithTicker, log logr.Logger) *orphans {
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[grant](50*time.Millisecond, 5*time.Second)
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(backoff,
		workqueue.TypedRateLimitingQueueConfig[grant]{Clock: clock})
	return &orphans{queue: queue, end: end, clock: clock, log: log}
}

func (o *orphans) add(orphan grant) { o.queue.Add(orphan) }

// run works until ctx ends. What is still queued then ends by its ttl.
func (o *orphans) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, o.queue.ShutDown)
	defer stop()
	for {
		orphan, shutdown := o.queue.Get()
		if shutdown {
			return
		}
		o.process(ctx, orphan)
		o.queue.Done(orphan)
	}
}

func (o *orphans) process(ctx context.Context, orphan grant) {
	if !orphan.expireTime.After(o.clock.Now()) {
		o.queue.Forget(orphan)
		return
	}
	found, err := o.end(ctx, orphan)
	switch {
	case err != nil:
		o.log.V(1).Info("Could not end an abandoned grant, will try again",
			"namespace", orphan.name.Namespace, "lock", orphan.name.Name, "reason", err.Error())
		o.queue.AddRateLimited(orphan)
	case !found && orphan.uid == "" && o.queue.NumRequeues(orphan) < lateWriteChecks:
		o.queue.AddRateLimited(orphan)
	default:
		o.queue.Forget(orphan)
	}
}
