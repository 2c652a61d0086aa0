package webhook

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
)

const (
	// awaitedFor is the time after which an admitted change that did not show counts as not
	// made. The timeout of requests to the API server is shorter.
	awaitedFor = time.Minute
	// maxAwaited bounds the awaited changes at a time. Records of further ones are lost.
	maxAwaited = 10_000
	// minAwaitedSweep is the number of awaited changes at which the removal of overdue ones
	// starts, at most once in awaitedSweepPause.
	minAwaitedSweep   = 256
	awaitedSweepPause = time.Second
)

// awaited holds the admitted changes that the informer has not shown yet. It is an event
// handler of the informer, which shows each state of a lock once, in order, unless its watch
// breaks.
type awaited struct {
	sink  audit.Sink
	clock clock.PassiveClock

	mu    sync.Mutex
	facts map[awaitedFact]awaitedRecords
	swept time.Time
}

// awaitedFact identifies a change by what the informer will show. Requests of which only one
// can succeed, such as repetitions of a conditional update, may be equal.
type awaitedFact struct {
	kind awaitedKind
	name types.NamespacedName
	// uid is empty for a grant: that of a create is not known yet.
	uid types.UID
	// holder, owner and the times, in microseconds, are empty for an end.
	holder, owner       string
	acquired, prolonged int64
}

type awaitedKind int

const (
	awaitedGrant awaitedKind = iota
	awaitedRenewal
	awaitedEnd
)

type awaitedRecords struct {
	// event begins the grant.
	event audit.Event
	// ended is the record of the grant that ends by this, or nil.
	ended *audit.Record
	// actor renews.
	actor string
	since time.Time
}

func newAwaited(sink audit.Sink, now clock.PassiveClock) *awaited {
	return &awaited{sink: sink, clock: now, facts: map[awaitedFact]awaitedRecords{}}
}

// grant awaits the storage of next, which begins a grant and, unless ended is nil, ends the
// previous one.
func (a *awaited) grant(next *v1alpha1.Lock, event audit.Event, ended *audit.Record) {
	a.await(grantFact(next), awaitedRecords{event: event, ended: ended})
}

// renewal awaits the storage of next, a renewal by the actor.
func (a *awaited) renewal(next *v1alpha1.Lock, actor string) {
	a.await(renewalFact(next), awaitedRecords{actor: actor})
}

// end awaits the deletion of the object of the record.
func (a *awaited) end(record audit.Record) {
	a.await(endFact(record.Namespace, record.Lock, types.UID(record.UID)), awaitedRecords{ended: &record})
}

func grantFact(lock *v1alpha1.Lock) awaitedFact {
	return awaitedFact{
		kind: awaitedGrant, name: types.NamespacedName{Namespace: lock.Namespace, Name: lock.Name},
		holder: lock.Spec.Holder, owner: lock.Spec.Owner, acquired: micros(lock.Spec.AcquireTime),
	}
}

func renewalFact(lock *v1alpha1.Lock) awaitedFact {
	fact := grantFact(lock)
	fact.kind, fact.uid, fact.prolonged = awaitedRenewal, lock.UID, micros(lock.Spec.RenewTime)
	return fact
}

func endFact(namespace, name string, uid types.UID) awaitedFact {
	return awaitedFact{kind: awaitedEnd, name: types.NamespacedName{Namespace: namespace, Name: name}, uid: uid}
}

func micros(stamp *v1alpha1.Timestamp) int64 {
	if stamp == nil {
		return 0
	}
	return stamp.UnixMicro()
}

func (a *awaited) await(fact awaitedFact, records awaitedRecords) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	if len(a.facts) >= minAwaitedSweep && now.Sub(a.swept) >= awaitedSweepPause {
		maps.DeleteFunc(a.facts, func(_ awaitedFact, records awaitedRecords) bool { return isOverdue(records, now) })
		a.swept = now
	}
	if len(a.facts) >= maxAwaited {
		a.sink.Lost()
		return
	}
	records.since = now
	a.facts[fact] = records
}

func isOverdue(records awaitedRecords, now time.Time) bool {
	return now.Sub(records.since) > awaitedFor
}

// take removes and returns the records of a change, unless it is overdue.
func (a *awaited) take(fact awaitedFact) (awaitedRecords, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	records, ok := a.facts[fact]
	if !ok {
		return awaitedRecords{}, false
	}
	delete(a.facts, fact)
	return records, !isOverdue(records, a.clock.Now())
}

// OnAdd implements [cache.ResourceEventHandler].
func (a *awaited) OnAdd(object any, _ bool) { a.stored(object) }

// OnUpdate implements [cache.ResourceEventHandler].
func (a *awaited) OnUpdate(_, object any) { a.stored(object) }

// stored records the changes that led to this state. If the informer has missed a state, the
// one after the next renewal still shows the grant.
func (a *awaited) stored(object any) {
	lock, ok := object.(*v1alpha1.Lock)
	if !ok {
		return
	}
	if records, ok := a.take(grantFact(lock)); ok {
		if records.ended != nil {
			a.sink.Record(*records.ended)
		}
		a.sink.Record(audit.Begun(records.event, audit.Admission, lock))
	}
	if records, ok := a.take(renewalFact(lock)); ok {
		a.sink.Record(audit.Prolonged(audit.Admission, records.actor, lock))
	}
	if !lock.DeletionTimestamp.IsZero() {
		a.marked(endFact(lock.Namespace, lock.Name, lock.UID))
	}
}

// marked restarts the wait for the end of an object that is only marked as deleted because it
// has finalizers, such as that of a foreground deletion.
func (a *awaited) marked(fact awaitedFact) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if records, ok := a.facts[fact]; ok {
		records.since = a.clock.Now()
		a.facts[fact] = records
	}
}

// OnDelete implements [cache.ResourceEventHandler].
func (a *awaited) OnDelete(object any) {
	if unseen, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unseen.Obj
	}
	lock, ok := object.(*v1alpha1.Lock)
	if !ok {
		return
	}
	if records, ok := a.take(endFact(lock.Namespace, lock.Name, lock.UID)); ok {
		a.sink.Record(*records.ended)
	}
}
