package engine

import (
	"cmp"
	"container/list"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine/places"
	"forrst.dev/lock-operator/lock/rules"
)

// queues holds one queue of waiters for each lock. All share one mutex, which is never held during
// a request.
type queues struct {
	// known is asked under the mutex: otherwise a change reported in between would be lost, and the end of a lock is
	// reported only once.
	known knownLocks
	// random returns a number in [0, 1).
	random func() float64
	// maxUnanswered is for how long the head of a queue waits that has learnt nothing of its lock, since
	// requests fail. Zero means without a limit.
	maxUnanswered time.Duration

	mu        sync.Mutex
	byName    map[types.NamespacedName]*queue
	isStopped bool
	// closedAt is since when the watch has been closed; zero while it is open, or the engine cannot tell.
	closedAt time.Time
	// due are the queues whose rechecks wait for their turn, first in, first out.
	due list.List
	// nextRead is when the next recheck may be made.
	nextRead time.Time
	spread   spread
	// standing counts those that wait.
	standing standing
	// kept are the places of waiters that have left without the lock.
	kept places.Kept
}

// knownLocks is what queues ask of a [lockCache].
type knownLocks interface {
	get(types.NamespacedName) *v1alpha1.Lock
	newest(types.NamespacedName) (newest *v1alpha1.Lock, isOwn bool)
	series(types.NamespacedName) *series
	countHandOff(granted *v1alpha1.Lock, now time.Time)
}

func newQueues(known knownLocks, maxSpread time.Duration) *queues {
	return &queues{
		known: known, random: rand.Float64, spread: spread{most: maxSpread}, byName: map[types.NamespacedName]*queue{},
	}
}

// queue holds the waiters of this engine for one lock: the highest priority first, and within a priority first in, first out. It
// is there while callers wait, or a grant of this engine is being released. While callers wait it has an actor, see [Engine.act],
// which alone grants the lock to them, one write at a time. Only the head contends.
type queue struct {
	name types.NamespacedName
	// counted counts the waiters of all queues.
	counted *standing
	// wake makes the actor check its state.
	wake chan struct{}

	// The mutex of queues guards the fields below.

	waiters list.List
	// unbounded is how many of them the bounds do not apply to.
	unbounded int
	// byCaller has the waiter that has come last of each caller.
	byCaller waiterIndex
	// found are former waiters whose request has been granted the lock by another call, and who are yet to be told.
	found []*waiter
	// byID are the waiters with the ID of an acquisition, of which it has the last try.
	byID waiterIndex
	// isActing says that there is an actor, and holds how many releases keep the queue besides.
	isActing bool
	holds    int
	// joins is closed when a waiter joins; nil if no release waits for that.
	joins chan struct{}
	// requests are for the grants that are to be handed off, first in, first out.
	requests []*handOffRequest
	// inFlight is the waiter that the actor is writing for, or nil. It need not be the head any more: what is written
	// for it is its own, whoever comes before it meanwhile.
	inFlight *waiter
	// unanswered is the error of a write for it that may have happened, while that is found out; nil if there is none.
	unanswered error
	// overdue are the waiters whose waits were over while they were in flight, or at the head.
	overdue  []*waiter
	seen     lastSeen
	rechecks rechecks
	// turn is the queue's place among those that are due; nil if it is not among them.
	turn *list.Element
	// delay is how long the head waits after the lock has become free, since others may be quicker.
	delay time.Duration
	// hasLost says that a head has tried and another engine was faster: the delay is for queues that contend.
	hasLost bool
	// isYielding says that this engine is deleting the lock, and that the informer has not reported the delete
	// yet.
	isYielding bool
	// yieldUntil is when the pause for the waiters of other engines ends.
	yieldUntil time.Time
	// settled is when those have come that waited at another engine before; zero if no one did.
	settled time.Time
	backoff backoffState
	// cancelRead ends the recheck that is under way; nil if there is none, or it was ended.
	cancelRead context.CancelFunc
	// freedAt is when the lock became free as far as the engine knows; zero if it has not.
	freedAt time.Time
	// release is the release that has deleted the lock, or is about to.
	release knownRelease
}

// knownRelease is a release of this engine, or one that another engine has told of, for [Tracer] alone.
type knownRelease struct {
	// uid is that of the object that it deletes.
	uid types.UID
	// span is the context of its caller; nil if there is no such release.
	span context.Context // the wait that it ends is in another goroutine
}

// settleFor is how long a queue that gets a waiter from another engine waits for the others who waited there: they come
// through several replicas, and the order of their places counts.
const settleFor = 50 * time.Millisecond

// add appends a waiter, and reports whether its queue needs an actor. A new queue
// begins with the newest state that is known, and reads the lock once unless that is
// a grant that this engine has just made: the watch may have lost the end of any other.
//
// The error is a [*lock.LineFullError].
func (q *queues) add(name types.NamespacedName, joined *waiter, now time.Time) (of *queue, needsActor bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	known, exists := q.byName[name]
	if err := q.checkRoom(known, name, joined, now); err != nil {
		return nil, false, err
	}
	if kept, isKept := q.kept.Take(joined.caller(name), now); isKept && kept.Before(joined.since) {
		joined.since = kept
	}
	if !exists {
		known = q.begin(name, now, nil)
	}
	joined.hasWaited = known.head() != nil || known.seen.lock != nil && !rules.Expired(known.seen.lock, now)
	if joined.isAccepted && known.settled.IsZero() {
		known.settled = now.Add(settleFor)
	}
	known.insert(joined, now)
	if joined.request.ID != "" || exists && known.head() == joined {
		known.signal() // Another engine may have granted it the lock, or the actor may sleep for another head.
	}
	known.tellJoined()
	needsActor, known.isActing = !known.isActing, true
	return known, needsActor, nil
}

// begin adds a queue. Held is the grant that it is to end, or nil.
func (q *queues) begin(name types.NamespacedName, now time.Time, held *v1alpha1.Lock) *queue {
	begun := &queue{counted: &q.standing, name: name, wake: make(chan struct{}, 1)}
	q.byName[name] = begun
	seen, isOwn := q.known.newest(name)
	if isNewerState(held, seen) {
		seen, isOwn = held, true
	}
	if seen != nil {
		begun.seen.update(lock.Change{Lock: seen}, true)
		if isOwn && q.closedAt.IsZero() {
			q.proven(begun, lastWrite(seen, now))
		}
	}
	return begun
}

// lastWrite returns when the engine has granted or renewed the lock last, by the clock of the API server: the watch may have
// lost its end since. It is now at the latest.
func lastWrite(own *v1alpha1.Lock, now time.Time) time.Time {
	written := cmp.Or(own.Spec.RenewTime, own.Spec.AcquireTime)
	if written == nil || written.After(now) {
		return now
	}
	return written.Time
}

// dismiss takes out a waiter that leaves without the lock. It keeps its place for a while.
func (q *queues) dismiss(queue *queue, gone *waiter, now time.Time) {
	queue.takeOut(gone)
	q.keep(gone.place(queue.name), now)
}

// keep keeps the place of a caller that has left. If it has come again meanwhile, the place is that of the new
// call.
func (q *queues) keep(left places.Place, now time.Time) {
	queue := q.byName[left.Lock]
	if queue == nil {
		q.kept.Keep(left, now)
		return
	}
	switch again := queue.lastOf(left.Caller); {
	case again == nil:
		q.kept.Keep(left, now)
	case again.since.After(left.Since):
		again.since = left.Since
		queue.waiters.Remove(again.element)
		queue.place(again, now)
		queue.signal()
	}
}

// held returns the lock that those who wait for it have seen held, or nil.
func (q *queues) held(name types.NamespacedName) *v1alpha1.Lock {
	q.mu.Lock()
	defer q.mu.Unlock()
	if queue := q.byName[name]; queue != nil {
		return queue.seen.lock
	}
	return nil
}

// hasObserved reports whether the informer has shown the object and will therefore report its end.
func (q *queues) hasObserved(current *v1alpha1.Lock) bool {
	seen := q.known.get(nameOf(current))
	return seen != nil && seen.UID == current.UID
}

// setWatch records whether the watch is closed. When it is, the heads look at once how far they may rely on it.
func (q *queues) setWatch(isClosed bool, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !isClosed {
		q.closedAt = time.Time{}
		return
	}
	q.closedAt = now
	for _, queue := range q.byName {
		queue.signal()
	}
}

// leave takes out a waiter whose caller has left. It returns what a wait that ended now would have.
func (q *queues) leave(queue *queue, gone *waiter, now time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dismiss(queue, gone, now)
	gone.goAway()
	queue.signal()
	return q.timeoutError(queue, gone, now)
}

// move takes out a waiter whose caller may stand in the line of another replica. Its place is kept here at most.
func (q *queues) move(queue *queue, gone *waiter, isKept bool, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue.takeOut(gone)
	if isKept {
		q.keep(gone.place(queue.name), now)
	}
	gone.goAway()
	queue.signal()
}

// doubtWritesFor records that a write for the waiter went unanswered.
func (q *queues) doubtWritesFor(tried *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	tried.isUnsure = true
}

// giveUp takes out a waiter whose wait is over, and returns the reason. It returns nil if a write
// for the waiter is under way or about to be: the waiter then waits for its outcome.
func (q *queues) giveUp(queue *queue, overdue *waiter, now time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if overdue.isOut {
		return nil // Its outcome is under way.
	}
	isHead := queue.head() == overdue
	isNext := isHead && queue.seen.lock == nil && queue.backoff.err == nil
	if queue.inFlight == overdue || isNext {
		if !overdue.isOverdue {
			queue.overdue = append(queue.overdue, overdue)
		}
		overdue.isOverdue = true
		queue.signal()
		return nil
	}
	q.dismiss(queue, overdue, now)
	overdue.goAway()
	if isHead {
		queue.signal() // The actor may sleep for the sake of this head, or the queue may be empty.
	}
	return q.timeoutError(queue, overdue, now)
}

// changed records a change that the informer reports.
func (q *queues) changed(name types.NamespacedName, change lock.Change, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue := q.byName[name]
	if queue == nil {
		return
	}
	wasHeld := queue.seen.lock != nil
	if queue.seen.update(change, true) {
		queue.backoff = backoffState{}
		queue.shown(now)
		switch {
		case wasHeld && change.IsGone:
			q.freed(queue, now)
		case !wasHeld && !change.IsGone && queue.inFlight == nil && queue.hasLost:
			q.spread.wasQuiet()
		}
	}
	if change.Lock.UID != queue.release.uid {
		queue.release = knownRelease{}
	}
	if change.IsGone && queue.isYielding {
		queue.isYielding, queue.yieldUntil = false, now.Add(headStart)
	}
	queue.signal()
}

// noteRelease records that a release with the context span is about to delete the object. The informer may
// report the end before the release learns of it.
func (q *queues) noteRelease(span context.Context, name types.NamespacedName, object types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if queue := q.byName[name]; queue != nil {
		queue.release = knownRelease{uid: object, span: span}
	}
}

// forgotten records that the informer will not report the end of a lock.
func (q *queues) forgotten(name types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if queue := q.byName[name]; queue != nil {
		queue.seen.isConfirmed = false
		queue.signal()
	}
}

// stop makes all queues dismiss their waiters and end.
func (q *queues) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.isStopped = true
	for _, queue := range q.byName {
		queue.signal()
	}
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// insert adds the waiter behind those that are served before it.
func (q *queue) insert(joined *waiter, now time.Time) {
	q.place(joined, now)
	q.count(joined, 1)
	if former := q.lastOf(joined.caller(q.name)); former != nil {
		joined.others = former.others + 1
	}
	q.byCaller.put(hashOf(joined.caller(q.name)), joined)
	if id, _ := rules.SplitTry(joined.request.ID); id != "" {
		q.byID.put(hashOf(id), joined)
	}
}

// place puts the waiter into its place: before all of lower priorities, and those of its own that came later.
func (q *queue) place(joined *waiter, now time.Time) {
	var next *list.Element
	for element := q.waiters.Back(); element != nil && joined.precedes(element.Value.(*waiter), now); element = element.Prev() {
		next = element
	}
	if next == nil {
		joined.element = q.waiters.PushBack(joined)
	} else {
		joined.element = q.waiters.InsertBefore(joined, next)
	}
	if other := cmp.Or(joined.element.Prev(), joined.element.Next()); other != nil {
		joined.shareText(other.Value.(*waiter))
	}
}

// takeOut removes the waiter, if it is still there.
func (q *queue) takeOut(gone *waiter) {
	if gone.isOut {
		return
	}
	gone.isOut = true
	gone.isUnsure = gone.isUnsure || q.inFlight == gone
	q.waiters.Remove(gone.element)
	q.count(gone, -1)
	q.takeOutOfCaller(gone)
	id, _ := rules.SplitTry(gone.request.ID)
	q.byID.remove(hashOf(id), gone)
}

// grantedElsewhere returns the waiter whose acquisition the lock records, or nil. If the grant is to a later try,
// the waiter is stale: its caller has left, may have been told of the grant, and only its leaving is not known here
// yet. Otherwise the engine that granted it could not tell the caller, who has joined this queue since.
func (q *queue) grantedElsewhere(now time.Time) (granted *waiter, isStale bool) {
	current := q.seen.lock
	if len(q.byID) == 0 || current == nil || rules.Expired(current, now) {
		return nil, false
	}
	id, grantedTry := rules.SplitTry(current.Annotations[v1alpha1.AcquisitionAnnotation])
	granted = q.byID.find(hashOf(id))
	if granted == nil || granted.request.Owner != current.Spec.Owner ||
		!(rules.User{Name: granted.request.Holder, UID: granted.request.HolderUID}).Holds(current) {
		return nil, false
	}
	waiting, try := rules.SplitTry(granted.request.ID)
	if waiting != id {
		return nil, false
	}
	return granted, try < grantedTry
}

// lastOf returns the waiter of the caller that has come last, or nil.
func (q *queue) lastOf(caller places.Caller) *waiter {
	if last := q.byCaller.find(hashOf(caller)); last != nil && last.caller(q.name) == caller {
		return last
	}
	return nil
}

// takeOutOfCaller leaves another waiter of the same caller in the index, if there is one.
func (q *queue) takeOutOfCaller(gone *waiter) {
	caller := gone.caller(q.name)
	last := q.lastOf(caller)
	if last == nil {
		return
	}
	if last != gone {
		last.others--
		return
	}
	q.byCaller.remove(hashOf(caller), gone)
	for element := q.waiters.Back(); gone.others > 0 && element != nil; element = element.Prev() {
		if other := element.Value.(*waiter); other.caller(q.name) == caller {
			other.others = gone.others - 1
			q.byCaller.put(hashOf(caller), other)
			return
		}
	}
}

// takeOutRepeated takes out the waiters whose request, which was sent several times, holds the lock by another call.
// All these calls are one wait, so its end is that of all. One that is written for at the moment has the grant itself.
func (q *queue) takeOutRepeated(held *v1alpha1.Lock) {
	if !rules.IsDerivedOwner(held.Spec.Owner) {
		return
	}
	caller := places.Caller{Lock: q.name, Owner: held.Spec.Owner, Holder: held.Spec.Holder, HolderUID: held.Spec.HolderUID}
	if q.lastOf(caller) == nil {
		return
	}
	for element := q.waiters.Front(); element != nil; {
		each := element.Value.(*waiter)
		element = element.Next()
		if each != q.inFlight && each.caller(q.name) == caller {
			q.takeOut(each)
			q.found = append(q.found, each)
		}
	}
	q.signal()
}

// endRepeated is [queue.takeOutRepeated] for a grant that its holder releases.
func (q *queues) endRepeated(held *v1alpha1.Lock) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if queue := q.byName[nameOf(held)]; queue != nil {
		queue.takeOutRepeated(held)
	}
}

// takeFound returns a waiter that [queue.takeOutRepeated] has taken out and that was not told yet, or nil.
func (q *queue) takeFound() *waiter {
	if len(q.found) == 0 {
		return nil
	}
	told := q.found[0]
	q.found = q.found[1:]
	return told
}

// overdueBehind returns a waiter behind the head whose wait is over and for whom no write is under way, or nil.
func (q *queue) overdueBehind(head *waiter) *waiter {
	q.overdue = slices.DeleteFunc(q.overdue, func(of *waiter) bool { return of.isOut })
	for _, waiter := range q.overdue {
		if waiter != head {
			return waiter
		}
	}
	return nil
}

// head returns the first waiter, or nil.
func (q *queue) head() *waiter {
	front := q.waiters.Front()
	if front == nil {
		return nil
	}
	return front.Value.(*waiter)
}
