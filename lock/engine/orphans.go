package engine

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	// maxLookups is how many unanswered grants are looked up one by one. After an outage there may
	// be thousands, most of which never happened: one that did must not wait for the others.
	maxLookups = 64
	// searchPeriod is the pause between two lists that look for all further ones.
	searchPeriod = 5 * time.Second
	// searchAgainAfter is the pause after a list that failed: an outage that ends leaves late grants.
	searchAgainAfter = time.Second
	// maxSearched bounds the memory of grants that are looked for in lists, to some hundred
	// megabytes. Beyond it a grant that did happen ends by its ttl.
	maxSearched = 100_000
)

// orphans ends grants that no caller will release: their writes happened after the caller had left
// or had been told that the service is unavailable. It tries until the grant has ended, at the
// latest by its ttl. A late grant is ended within about [searchPeriod] and the time of a list of
// the locks of its namespace, however many others are looked for.
type orphans struct {
	// queue holds the grants to look up and to end.
	queue workqueue.TypedRateLimitingInterface[grant]
	end   func(context.Context, grant) (found bool, err error)
	// list passes on the locks of a namespace as they are in etcd.
	list func(ctx context.Context, namespace string, each func(*v1alpha1.Lock)) error
	// clock judges expiry. timers measures durations and is never corrected.
	clock  clock.PassiveClock
	timers clock.WithTicker
	log    logr.Logger

	mu sync.Mutex
	// lookedUp are the unanswered grants in queue, and searched those to look for in lists. The
	// values are when the API server first answered that a grant does not exist; zero before.
	lookedUp, searched map[grant]time.Time
	// isSearching has a value if searched is not empty.
	isSearching chan struct{}
}

func newOrphans(
	end func(context.Context, grant) (bool, error), list func(context.Context, string, func(*v1alpha1.Lock)) error,
	now clock.PassiveClock, timers clock.WithTicker, log logr.Logger,
) *orphans {
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[grant](50*time.Millisecond, 5*time.Second)
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(backoff,
		workqueue.TypedRateLimitingQueueConfig[grant]{Clock: timers})
	return &orphans{
		queue: queue, end: end, list: list, clock: now, timers: timers, log: log,
		lookedUp: map[grant]time.Time{}, searched: map[grant]time.Time{}, isSearching: make(chan struct{}, 1),
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
	if orphan.isUnanswered && !o.lookUp(orphan) {
		return
	}
	o.queue.Add(orphan)
}

// lookUp reports whether there is room to look the grant up by itself. If not, lists look for it.
func (o *orphans) lookUp(orphan grant) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case len(o.lookedUp) < maxLookups:
		o.lookedUp[orphan] = time.Time{}
		return true
	case len(o.searched) >= maxSearched:
		o.log.Error(nil, "Too many writes went unanswered: if this one happened, its grant ends by its ttl",
			"namespace", orphan.lock.Namespace, "lock", orphan.lock.Name)
		return false
	}
	o.searched[orphan] = time.Time{}
	o.signal()
	return false
}

func (o *orphans) signal() {
	select {
	case o.isSearching <- struct{}{}:
	default:
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
			o.queue.AddRateLimited(orphan)
		}
		o.queue.Done(orphan)
	}
}

// process tries to end the grant and reports whether it needs no further try.
func (o *orphans) process(ctx context.Context, orphan grant) (done bool) {
	// Whether an unanswered delete has ended a grant is to be recorded even after its ttl.
	if ctx.Err() != nil || !orphan.isEnding && o.hasExpired(orphan) {
		return true
	}
	found, err := o.end(ctx, orphan)
	if err != nil {
		o.log.V(1).Info("Could not end an abandoned grant, will try again",
			"namespace", orphan.lock.Namespace, "lock", orphan.lock.Name, "reason", err.Error())
		return false
	}
	if found || !orphan.isUnanswered {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.isOverdue(o.lookedUp, orphan)
}

func (o *orphans) hasExpired(orphan grant) bool { return rules.Expired(orphan.lock, o.clock.Now()) }

// isOverdue records that the API server has answered that the grant does not exist, and reports
// whether it has for so long that the write will not happen any more.
func (o *orphans) isOverdue(missed map[grant]time.Time, orphan grant) bool {
	now := o.timers.Now()
	if missed[orphan].IsZero() {
		missed[orphan] = now
	}
	return now.Sub(missed[orphan]) >= lateWriteWindow
}

// lookedFor returns how many grants are looked for of which it is not known whether they happened.
func (o *orphans) lookedFor() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.lookedUp) + len(o.searched)
}

func (o *orphans) forget(orphan grant) {
	o.queue.Forget(orphan)
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.lookedUp, orphan)
}

// search looks for the grants that are not looked up one by one, until ctx ends.
func (o *orphans) search(ctx context.Context) {
	pause := searchPeriod
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.isSearching:
		}
		select {
		case <-ctx.Done():
			return
		case <-o.timers.After(pause):
		}
		pause = searchPeriod
		if !o.searchOnce(ctx) {
			pause = searchAgainAfter
		}
	}
}

// finish has the workers try once to end each grant, and return.
func (o *orphans) finish(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	o.searchOnce(ctx)
	o.queue.ShutDown()
}

// searchOnce reports whether all lists were answered.
func (o *orphans) searchOnce(ctx context.Context) (isComplete bool) {
	isComplete = true
	for namespace, searched := range o.byNamespace() {
		late := map[grant]bool{}
		err := o.list(ctx, namespace, func(lock *v1alpha1.Lock) {
			for _, orphan := range searched[lock.Name] {
				if orphan.matches(lock) {
					late[orphan] = true
				}
			}
		})
		if err != nil {
			isComplete = false
			o.log.V(1).Info("Could not look for abandoned grants, will try again", "namespace", namespace, "reason", err.Error())
		}
		o.sort(searched, late, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.searched) > 0 {
		o.signal()
	}
	return isComplete
}

// byNamespace returns the grants to look for, by namespace and name.
func (o *orphans) byNamespace() map[string]map[string][]grant {
	o.mu.Lock()
	defer o.mu.Unlock()
	groups := map[string]map[string][]grant{}
	for orphan := range o.searched {
		namespace, name := orphan.lock.Namespace, orphan.lock.Name
		if groups[namespace] == nil {
			groups[namespace] = map[string][]grant{}
		}
		groups[namespace][name] = append(groups[namespace][name], orphan)
	}
	return groups
}

// sort passes the grants that the list has shown on to the workers, and drops those that have
// expired or will not happen any more. A program that may not list looks each of them up.
func (o *orphans) sort(searched map[string][]grant, late map[grant]bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, orphans := range searched {
		for _, orphan := range orphans {
			switch {
			case o.hasExpired(orphan):
				delete(o.searched, orphan)
			case late[orphan], apierrors.IsForbidden(err):
				o.lookedUp[orphan] = o.searched[orphan]
				delete(o.searched, orphan)
				o.queue.Add(orphan)
			case err == nil && o.isOverdue(o.searched, orphan):
				delete(o.searched, orphan)
			}
		}
	}
}
