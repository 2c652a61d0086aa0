package webhook

import (
	"container/list"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
)

const (
	// awaitedFor is the time after which an admitted change that did not show counts as not
	// made. The timeout of requests to the API server is shorter.
	awaitedFor = time.Minute
	// maxAwaited bounds the awaited changes at a time. A further one takes the place of the oldest
	// of the actor that has most.
	maxAwaited = 10_000
	// awaitedSweepPause is the shortest interval between two removals of overdue changes.
	awaitedSweepPause = time.Second
)

// awaited holds the admitted changes that the informer has not shown yet. It is an event
// handler of the informer, which shows each state of a lock once, in order, unless its watch
// breaks.
//
// Admission comes before validation, so any user who may create locks can have any number of changes
// admitted that never happen. They take the places of the user's own changes. The texts of a change are
// bounded, since a review may be forged.
type awaited struct {
	sink  audit.Sink
	clock clock.PassiveClock
	// most is [maxAwaited], or fewer in a test: to find the actor that has most takes as long as there are actors.
	most int

	mu     sync.Mutex
	facts  map[awaitedFact]*awaitedChange
	actors awaitedActors
	swept  time.Time
}

// awaitedFact identifies a change by what the informer will show. Requests of which only one
// can succeed, such as repetitions of a conditional update, may be equal.
type awaitedFact struct {
	kind awaitedKind
	name types.NamespacedName
	// uid is empty for a grant: that of a create is not known yet.
	uid types.UID
	// holder and owner, by their fingerprints, and the times, in microseconds, are empty for an end.
	holder, owner       string
	acquired, prolonged int64
}

type awaitedKind int

const (
	awaitedGrant awaitedKind = iota
	awaitedRenewal
	awaitedEnd
)

// awaitedChange is a change with its records.
type awaitedChange struct {
	fact awaitedFact
	// event begins the grant, or is [audit.Renewed]. Empty for an end.
	event audit.Event
	// ended is the record of the grant that ends by this, or nil.
	ended *audit.Record
	// actor makes the change.
	actor string
	since time.Time
	// isMarked says that an end has begun: the object is only kept by finalizers.
	isMarked bool
	// place is that among the changes of the actor.
	place *list.Element
}

// isForced reports whether this is a forced release. That is on record already, and is completed in
// any case.
func (c *awaitedChange) isForced() bool {
	return c.ended != nil && c.ended.Event == audit.ForceReleased
}

// records says what is lost with the change.
func (c *awaitedChange) records() (lost []audit.Record) {
	if c.ended != nil {
		lost = append(lost, *c.ended)
	}
	if c.event != "" {
		lost = append(lost, audit.Record{
			Event: c.event, Via: audit.Admission, Actor: c.actor, Namespace: c.fact.name.Namespace, Time: v1alpha1.NewTimestamp(c.since),
		})
	}
	return lost
}

func newAwaited(sink audit.Sink, now clock.PassiveClock) *awaited {
	return &awaited{sink: sink, clock: now, most: maxAwaited, facts: map[awaitedFact]*awaitedChange{}, actors: awaitedActors{}}
}

// grant awaits the storage of next, which begins a grant and, unless ended is nil, ends the
// previous one.
func (a *awaited) grant(next *v1alpha1.Lock, event audit.Event, ended *audit.Record) {
	a.await(&awaitedChange{fact: grantFact(next), event: event, ended: ended, actor: next.Spec.Holder})
}

// renewal awaits the storage of next, a renewal by the actor.
func (a *awaited) renewal(next *v1alpha1.Lock, actor string) {
	a.await(&awaitedChange{fact: renewalFact(next), event: audit.Renewed, actor: actor})
}

// end awaits the deletion of the object of the record.
func (a *awaited) end(record audit.Record) {
	a.await(&awaitedChange{fact: endFact(record.Namespace, record.Lock, types.UID(record.UID)), ended: &record, actor: record.Actor})
}

func grantFact(object *v1alpha1.Lock) awaitedFact {
	return awaitedFact{
		kind: awaitedGrant, name: boundedName(object.Namespace, object.Name), holder: lock.Fingerprint(object.Spec.Holder),
		owner: lock.Fingerprint(object.Spec.Owner), acquired: micros(object.Spec.AcquireTime),
	}
}

func renewalFact(object *v1alpha1.Lock) awaitedFact {
	fact := grantFact(object)
	fact.kind, fact.uid, fact.prolonged = awaitedRenewal, boundedUID(object.UID), micros(object.Spec.RenewTime)
	return fact
}

func endFact(namespace, name string, uid types.UID) awaitedFact {
	return awaitedFact{kind: awaitedEnd, name: boundedName(namespace, name), uid: boundedUID(uid)}
}

// boundedName returns a name that is that of a lock, if any lock can have it.
func boundedName(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: audit.BoundedName(namespace), Name: audit.BoundedName(name)}
}

func boundedUID(uid types.UID) types.UID { return types.UID(audit.BoundedName(string(uid))) }

func micros(stamp *v1alpha1.Timestamp) int64 {
	if stamp == nil {
		return 0
	}
	return stamp.UnixMicro()
}

func (a *awaited) await(change *awaitedChange) {
	change.actor = audit.BoundedName(change.actor)
	if change.ended != nil {
		change.ended.Bound()
	}
	a.sweep(false)
	a.mu.Lock()
	defer a.mu.Unlock()
	change.since = a.clock.Now()
	if former := a.facts[change.fact]; former != nil {
		a.remove(former)
		change.isMarked = former.isMarked // Another delete of a marked object writes nothing that would show.
		if former.isForced() && former.actor != change.actor {
			a.sink.Record(unseenRelease(former.ended, change.since))
		}
	}
	if len(a.facts) >= a.most {
		lost := a.actors.oldestOfMost()
		a.remove(lost)
		for _, record := range lost.records() {
			a.sink.Lost(record)
		}
	}
	a.facts[change.fact] = change
	a.actors.add(change)
}

// remove forgets a change. It needs the mutex.
func (a *awaited) remove(change *awaitedChange) {
	delete(a.facts, change.fact)
	a.actors.remove(change)
}

// sweep forgets the changes that are overdue. That a forced release is overdue is recorded, but only if the
// watch is alive: isShown says that it has just shown a change.
func (a *awaited) sweep(isShown bool) {
	var unseen []audit.Record
	defer func() {
		for _, record := range unseen {
			a.sink.Record(record)
		}
	}()
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	if now.Sub(a.swept) < awaitedSweepPause {
		return
	}
	a.swept = now
	for _, change := range a.facts {
		switch {
		case !isOverdue(change, now):
		case !change.isForced():
			a.remove(change)
		case isShown:
			a.remove(change)
			unseen = append(unseen, unseenRelease(change.ended, now))
		}
	}
}

func isOverdue(change *awaitedChange, now time.Time) bool {
	return now.Sub(change.since) > awaitedFor && !change.isMarked
}

// take removes and returns a change, unless it is overdue. A forced release is never: it is on record
// that it was admitted.
func (a *awaited) take(fact awaitedFact) (*awaitedChange, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change, ok := a.facts[fact]
	if !ok {
		return nil, false
	}
	a.remove(change)
	return change, change.isForced() || !isOverdue(change, a.clock.Now())
}

// OnAdd implements [cache.ResourceEventHandler].
func (a *awaited) OnAdd(object any, _ bool) { a.stored(nil, object) }

// OnUpdate implements [cache.ResourceEventHandler].
func (a *awaited) OnUpdate(before, object any) { a.stored(before, object) }

// stored records the changes that led to this state. If the informer has missed a state, the
// one after the next renewal still shows the grant.
func (a *awaited) stored(before, object any) {
	defer a.sweep(true)
	lock, ok := object.(*v1alpha1.Lock)
	if !ok {
		return
	}
	if change, ok := a.take(grantFact(lock)); ok {
		if change.ended != nil {
			a.sink.Record(*change.ended)
		}
		a.sink.Record(audit.Begun(change.event, audit.Admission, lock))
	}
	if change, ok := a.take(renewalFact(lock)); ok {
		before, _ := before.(*v1alpha1.Lock) // The first state has none before.
		a.sink.Record(audit.Prolonged(audit.Admission, change.actor, before, lock))
	}
	if !lock.DeletionTimestamp.IsZero() {
		a.marked(endFact(lock.Namespace, lock.Name, lock.UID))
	}
}

// marked waits without a limit for the end of an object that is only marked as deleted because it
// has finalizers, such as that of a foreground deletion.
func (a *awaited) marked(fact awaitedFact) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if change, ok := a.facts[fact]; ok {
		change.isMarked = true
	}
}

// OnDelete implements [cache.ResourceEventHandler].
func (a *awaited) OnDelete(object any) {
	defer a.sweep(true)
	if unseen, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unseen.Obj
	}
	lock, ok := object.(*v1alpha1.Lock)
	if !ok {
		return
	}
	if change, ok := a.take(endFact(lock.Namespace, lock.Name, lock.UID)); ok {
		a.sink.Record(*change.ended)
	}
}
