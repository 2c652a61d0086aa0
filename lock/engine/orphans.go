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
	// orphanWorkers is how many orphans are processed at a time.
	orphanWorkers = 16
	// lookupsPerSecond bounds the reads that look for unanswered grants, and lookupsAtOnce those at once. After an outage
	// there may be thousands of such grants, most of which never happened.
	lookupsPerSecond = 200
	lookupsAtOnce    = 64
	// maxLookedFor bounds the memory of unanswered grants, to some hundred megabytes. Beyond it a grant that did happen
	// ends by its ttl.
	maxLookedFor = 100_000
)

// orphans ends grants that no caller will release: their writes happened after the caller had left
// or had been told that the service is unavailable. It tries until the grant has ended, at the
// latest by its ttl. A write that went unanswered is looked for by reads, and when the informer shows a lock that it has made.
type orphans struct {
	// queue holds the grants to look up and to end, and backoff says when to try again.
	queue   workqueue.TypedDelayingInterface[grant]
	backoff workqueue.TypedRateLimiter[grant]
	lookups *rate.Limiter
	end     func(context.Context, grant) (found bool, err error)
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

func newOrphans(end func(context.Context, grant) (bool, error), cached func(types.NamespacedName) *v1alpha1.Lock, now clock.PassiveClock, timers clock.WithTicker, log logr.Logger) *orphans {
	return &orphans{
		queue:   workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[grant]{Clock: timers}),
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[grant](50*time.Millisecond, 5*time.Second),
		lookups: rate.NewLimiter(lookupsPerSecond, lookupsAtOnce),
		end:     end, cached: cached, clock: now, timers: timers, log: log,
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
		o.addLater(orphan)
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

func (o *orphans) addLater(orphan grant) {
	delay := o.backoff.When(orphan)
	if now := o.timers.Now(); orphan.isUnanswered {
		delay = max(delay, o.lookups.ReserveN(now, 1).DelayFrom(now))
	}
	o.queue.AddAfter(orphan, delay)
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
			o.addLater(orphan)
		}
		o.queue.Done(orphan)
	}
}

// process tries to end the grant and reports whether it needs no further try.
func (o *orphans) process(ctx context.Context, orphan grant) (done bool) {
	// Whether an unanswered delete has ended a grant is to be recorded even after its ttl.
	hasExpired := !orphan.isEnding && rules.Expired(orphan.lock, o.clock.Now())
	if ctx.Err() != nil || hasExpired || orphan.isUnanswered && !o.isLookedFor(orphan) {
		return true
	}
	found, err := o.end(ctx, orphan)
	if err != nil {
		o.log.V(1).Info("Could not end an abandoned grant, will try again",
			"namespace", orphan.lock.Namespace, "lock", orphan.lock.Name, "reason", err.Error())
		return false
	}
	return found || !orphan.isUnanswered || o.isOverdue(orphan)
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
	if missed[orphan].IsZero() {
		missed[orphan] = now
	}
	return now.Sub(missed[orphan]) >= lateWriteWindow
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
	o.queue.ShutDown()
}
