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
	// lateWriteWindow is how long the engine looks for an unanswered write after the API server
	// first answered that it did not happen. The API server may work on a request after its client
	// has given up, by default for a minute.
	lateWriteWindow = time.Minute
	// orphanWorkers is how many orphans are processed at a time.
	orphanWorkers = 4
)

// orphans ends grants that no caller will release: their writes happened after the caller had left
// or had been told that the service is unavailable. It tries until the grant has ended, at the
// latest by its ttl.
type orphans struct {
	queue workqueue.TypedRateLimitingInterface[grant]
	end   func(context.Context, grant) (found bool, err error)
	// clock judges expiry. timers measures durations and is never corrected.
	clock, timers clock.PassiveClock
	log           logr.Logger

	mu sync.Mutex
	// missed is when the API server first answered that a grant does not exist.
	missed map[grant]time.Time
}

func newOrphans(end func(context.Context, grant) (bool, error), now clock.PassiveClock, timers clock.WithTicker, log logr.Logger) *orphans {
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[grant](50*time.Millisecond, 5*time.Second)
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(backoff,
		workqueue.TypedRateLimitingQueueConfig[grant]{Clock: timers})
	return &orphans{queue: queue, end: end, clock: now, timers: timers, log: log, missed: map[grant]time.Time{}}
}

func (o *orphans) add(orphan grant) { o.queue.Add(orphan) }

// run processes orphans until the queue is shut down and empty, or ctx ends.
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

// process tries to end the grant and reports whether it needs no further try.
func (o *orphans) process(ctx context.Context, orphan grant) (done bool) {
	// Whether an unanswered delete has ended a grant is to be recorded even after its ttl.
	if ctx.Err() != nil || !orphan.isEnding && rules.Expired(orphan.lock, o.clock.Now()) {
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

// sinceMissed returns how long ago the API server first answered that the grant does not exist.
// The first call returns zero.
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
