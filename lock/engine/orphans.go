package engine

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/lock/rules"
)

const (
	// lateWriteWindow is for how long an unanswered write is looked for after the API
	// server has answered that it did not happen: it may be working on it still after
	// its client has given up, by default for a minute.
	lateWriteWindow = time.Minute
	// orphanWorkers look for grants at a time.
	orphanWorkers = 4
)

// orphans ends grants that no caller will release: those whose writes happened after the
// caller had left or had been told that the service is unavailable. It tries
// until the grant has ended one way or the other, at the latest by its ttl.
type orphans struct {
	queue workqueue.TypedRateLimitingInterface[grant]
	end   func(context.Context, grant) (found bool, err error)
	// clock tells when a grant expires; timers measures, and is never corrected.
	clock, timers clock.PassiveClock
	log           logr.Logger

	mu sync.Mutex
	// missed is when the API server first answered that a grant is not there.
	missed map[grant]time.Time
}

func newOrphans(end func(context.Context, grant) (bool, error), now clock.PassiveClock, timers clock.WithTicker, log logr.Logger) *orphans {
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[grant](50*time.Millisecond, 5*time.Second)
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(backoff,
		workqueue.TypedRateLimitingQueueConfig[grant]{Clock: timers})
	return &orphans{queue: queue, end: end, clock: now, timers: timers, log: log, missed: map[grant]time.Time{}}
}

func (o *orphans) add(orphan grant) { o.queue.Add(orphan) }

// run works until the queue is shut down and empty, or ctx ends.
func (o *orphans) run(ctx context.Context) {
	for {
		orphan, shutdown := o.queue.Get()
		if shutdown {
			return
		}
		if o.process(ctx, orphan) {
			o.forget(orphan)
		} else {
			o.queue.AddRateLimited(orphan)
		}
		o.queue.Done(orphan)
	}
}

// process reports whether there is nothing left to do about the grant.
func (o *orphans) process(ctx context.Context, orphan grant) (done bool) {
	if ctx.Err() != nil || rules.Expired(orphan.lock, o.clock.Now()) {
		return true
	}
	found, err := o.end(ctx, orphan)
	if err != nil {
		o.log.V(1).Info("Could not end an abandoned grant, will try again",
			"namespace", orphan.lock.Namespace, "lock", orphan.lock.Name, "reason", err.Error())
		return false
	}
	return found || !orphan.isUnanswered || o.sinceMissed(orphan) >= lateWriteWindow
}

// sinceMissed returns how long ago the API server first answered that the grant is
// not there, which is now if it has not before.
func (o *orphans) sinceMissed(orphan grant) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.timers.Now()
	if _, ok := o.missed[orphan]; !ok {
		o.missed[orphan] = now
	}
	return now.Sub(o.missed[orphan])
}

func (o *orphans) forget(orphan grant) {
	o.queue.Forget(orphan)
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.missed, orphan)
}
