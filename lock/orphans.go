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
	// misses counts how often the API server answered that a grant is not there. Only
	// run uses it.
	misses map[grant]int
}

func newOrphans(end func(context.Context, grant) (bool, error), clock clock.WithTicker, log logr.Logger) *orphans {
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[grant](50*time.Millisecond, 5*time.Second)
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(backoff,
		workqueue.TypedRateLimitingQueueConfig[grant]{Clock: clock})
	return &orphans{queue: queue, end: end, clock: clock, log: log, misses: map[grant]int{}}
}

func (o *orphans) add(orphan grant) { o.queue.Add(orphan) }

// run works until the queue is shut down and empty.
func (o *orphans) run(ctx context.Context) {
	for {
		orphan, shutdown := o.queue.Get()
		if shutdown {
			return
		}
		if o.process(ctx, orphan) {
			o.queue.Forget(orphan)
			delete(o.misses, orphan)
		} else {
			o.queue.AddRateLimited(orphan)
		}
		o.queue.Done(orphan)
	}
}

// process reports whether there is nothing left to do about the grant.
func (o *orphans) process(ctx context.Context, orphan grant) (done bool) {
	if !orphan.expireTime.After(o.clock.Now()) {
		return true
	}
	found, err := o.end(ctx, orphan)
	if err != nil {
		o.log.V(1).Info("Could not end an abandoned grant, will try again",
			"namespace", orphan.name.Namespace, "lock", orphan.name.Name, "reason", err.Error())
		return false
	}
	if found || !orphan.isUnanswered {
		return true
	}
	o.misses[orphan]++
	return o.misses[orphan] >= lateWriteChecks
}
