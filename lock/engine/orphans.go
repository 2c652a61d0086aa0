package engine

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

const (
	// lateWriteWindow is how long the engine looks for an unanswered write after the API server
	// first answered that it did not happen. The API server may work on a request after its client
	// has given up, by default for a minute.
	lateWriteWindow = time.Minute
	// orphanWorkers is how many orphans are ended at a time.
	orphanWorkers = 16
	// lookupsPerSecond bounds the reads that look for unanswered grants, and lookupWorkers those at a time. After an outage
	// there may be thousands of such grants, most of which never happened.
	lookupsPerSecond = 200
	lookupWorkers    = 16
	// maxLookedFor bounds the memory of unanswered grants, to some hundred megabytes. Beyond it a grant that did happen
	// ends by its ttl.
	maxLookedFor = 100_000
)

// orphans ends grants that no caller will release: their writes happened after the caller had left
// or had been told that the service is unavailable. It tries until the grant has ended, at the
// latest by its ttl. A write that went unanswered is looked for by reads, and when the informer shows a lock that it has made.
type orphans struct {
	// queue holds the grants to end, lookups those of which it is not known whether they happened: so that the former do
	// not wait for the latter. Backoff says when to try again.
	queue, lookups workqueue.TypedDelayingInterface[grant]
	backoff        workqueue.TypedRateLimiter[grant]
	lookupRate     *rate.Limiter
	// finished ends the lookups.
	finished chan struct{}
	end      func(context.Context, grant) (found bool, err error)
	// read returns the lock as the API server has it, or nil.
	read func(context.Context, types.NamespacedName) (*v1alpha1.Lock, error)
	// cached returns the lock as the informer has shown it last, or nil.
	cached func(types.NamespacedName) *v1alpha1.Lock
	// clock judges expiry. timers measures durations and is never corrected.
	clock  clock.PassiveClock
	timers clock.WithTicker
	log    logr.Logger

	mu sync.Mutex
	// unanswered are the grants that may have happened, by the name of the lock. The values are when the API server first
	// answered that a grant does not exist; zero before.
	unanswered map[types.NamespacedName]map[grant]time.Time
	// number is how many there are.
	number int
}

func newOrphans(engine *Engine, now clock.PassiveClock, timers clock.WithTicker, log logr.Logger) *orphans {
	config := workqueue.TypedDelayingQueueConfig[grant]{Clock: timers}
	return &orphans{
		queue:      workqueue.NewTypedDelayingQueueWithConfig(config),
		lookups:    workqueue.NewTypedDelayingQueueWithConfig(config),
		backoff:    workqueue.NewTypedItemExponentialFailureRateLimiter[grant](50*time.Millisecond, 5*time.Second),
		lookupRate: rate.NewLimiter(lookupsPerSecond, lookupWorkers),
		finished:   make(chan struct{}),
		end:        engine.endGrant, read: engine.readOnce, cached: engine.lockCache.get,
		clock: now, timers: timers, log: log,
		unanswered: map[types.NamespacedName]map[grant]time.Time{},
	}
}

// Disown ends a grant that another engine has made for the acquisition in a try before the one that its ID names, see
// [rules.NthTry], or may still make: its caller does not know of it. A grant that has been renewed stays. It is looked
// for as long as an unanswered write of this engine is.
func (e *Engine) Disown(namespace string, acquisition rules.Acquisition) {
	// It may be stamped for as long as it may be written.
	sought := grantOf(rules.Grant(namespace, acquisition, e.limits, e.clock.Now().Add(lateWriteWindow)))
	sought.lock.Spec.AcquireTime, sought.lock.Spec.RenewTime = nil, nil
	sought.isUnanswered = true
	_, sought.triesBefore = rules.SplitTry(acquisition.ID)
	e.orphans.add(sought)
}

func (o *orphans) add(orphan grant) {
	switch {
	case !orphan.isUnanswered:
		o.queue.Add(orphan)
	case o.lookFor(orphan):
		o.lookups.AddAfter(orphan, o.backoff.When(orphan))
		if current := o.cached(nameOf(orphan.lock)); current != nil {
			o.shown(current) // The informer may have shown the grant before it was looked for.
		}
	}
}

// lookFor reports whether there is room to look for the grant.
func (o *orphans) lookFor(orphan grant) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	name := nameOf(orphan.lock)
	if o.number >= maxLookedFor {
		o.log.Error(nil, "Too many writes went unanswered: if this one happened, its grant ends by its ttl",
			"namespace", name.Namespace, "lock", name.Name)
		return false
	}
	if o.unanswered[name] == nil {
		o.unanswered[name] = map[grant]time.Time{}
	}
	o.unanswered[name][orphan] = time.Time{}
	o.number++
	return true
}

// shown has the grants ended that may have made the lock, which the informer shows.
func (o *orphans) shown(lock *v1alpha1.Lock) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for orphan := range o.unanswered[nameOf(lock)] {
		if orphan.matches(lock) {
			o.queue.Add(orphan)
		}
	}
}

// run ends orphans until the queue is shut down and empty, or ctx ends.
func (o *orphans) run(ctx context.Context) {
	for {
		orphan, shutdown := o.queue.Get()
		if shutdown {
			return
		}
		switch isDone, err := o.process(ctx, orphan); {
		case isDone:
			o.forget(orphan)
		case err != nil:
			o.log.V(1).Info("Could not end an abandoned grant, will try again",
				"namespace", orphan.lock.Namespace, "lock", orphan.lock.Name, "reason", err.Error())
			o.queue.AddAfter(orphan, o.backoff.When(orphan))
		}
		o.queue.Done(orphan)
	}
}

// process tries to end the grant and reports whether it needs no further try. One that is neither found nor done is still
// looked for.
func (o *orphans) process(ctx context.Context, orphan grant) (isDone bool, err error) {
	if o.isOver(ctx, orphan) {
		return true, nil
	}
	found, err := o.end(ctx, orphan)
	return found || err == nil && !orphan.isUnanswered, err
}

func (o *orphans) isOver(ctx context.Context, orphan grant) bool {
	// Whether an unanswered delete has ended a grant is to be recorded even after its ttl.
	hasExpired := !orphan.isEnding && rules.Expired(orphan.lock, o.clock.Now())
	return ctx.Err() != nil || hasExpired || orphan.isUnanswered && !o.isLookedFor(orphan)
}

// look reads the locks of unanswered grants until there are to be no more lookups, or ctx ends.
func (o *orphans) look(ctx context.Context) {
	for {
		orphan, shutdown := o.lookups.Get()
		if shutdown {
			return
		}
		if o.isOver(ctx, orphan) || o.awaitTurn(ctx) && o.lookUp(ctx, orphan) {
			o.forget(orphan)
		} else {
			o.lookups.AddAfter(orphan, o.backoff.When(orphan))
		}
		o.lookups.Done(orphan)
	}
}

// awaitTurn returns when the next lookup may be made; false if none may any more.
func (o *orphans) awaitTurn(ctx context.Context) bool {
	now := o.timers.Now()
	delay := o.lookupRate.ReserveN(now, 1).DelayFrom(now)
	if delay == 0 {
		return true
	}
	timer := o.timers.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-o.finished:
	case <-timer.C():
		return true
	}
	return false
}

// lookUp has the grant ended if the API server shows it, and reports whether it need not be looked for any more.
func (o *orphans) lookUp(ctx context.Context, orphan grant) (isOverdue bool) {
	current, err := o.read(ctx, nameOf(orphan.lock))
	switch {
	case err != nil:
		return false
	case current != nil && orphan.matches(current):
		o.queue.Add(orphan)
		return false
	}
	return o.isOverdue(orphan)
}

// isLookedFor is false for a grant that was found, which the queue may have twice.
func (o *orphans) isLookedFor(orphan grant) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, isLookedFor := o.unanswered[nameOf(orphan.lock)][orphan]
	return isLookedFor
}

// isOverdue records that the API server has answered that the grant does not exist, and reports
// whether it has for so long that the write will not happen any more.
func (o *orphans) isOverdue(orphan grant) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	missed, now := o.unanswered[nameOf(orphan.lock)], o.timers.Now()
	since, isLookedFor := missed[orphan]
	switch {
	case !isLookedFor: // It was ended meanwhile.
		return true
	case since.IsZero():
		missed[orphan], since = now, now
	}
	return now.Sub(since) >= lateWriteWindow
}

// lookedFor returns how many grants are looked for of which it is not known whether they happened.
func (o *orphans) lookedFor() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.number
}

func (o *orphans) forget(orphan grant) {
	o.backoff.Forget(orphan)
	o.mu.Lock()
	defer o.mu.Unlock()
	name := nameOf(orphan.lock)
	if _, isLookedFor := o.unanswered[name][orphan]; !isLookedFor {
		return
	}
	o.number--
	if delete(o.unanswered[name], orphan); len(o.unanswered[name]) == 0 {
		delete(o.unanswered, name)
	}
}

// finish has the workers try once more to end each grant, and return.
func (o *orphans) finish() {
	o.mu.Lock()
	for _, orphans := range o.unanswered {
		for orphan := range orphans {
			o.queue.Add(orphan)
		}
	}
	o.mu.Unlock()
	close(o.finished)
	o.lookups.ShutDown()
	o.queue.ShutDown()
}
