package engine

import (
	"context"
	"errors"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/refusal"
)

// handover is a grant of this engine that is to end: its holder releases it, or its caller has left. The actor of the lock
// hands the lock off to the first waiter, or deletes it if there is none.
type handover struct {
	ctx  context.Context // that of the release, for [Tracer] and its user; the actor bounds it anew
	held grant
	// onlyTo is the holder that the first waiter must have for anything to be done. Empty means any, or a delete.
	onlyTo string
	// isRelease says that a caller waits for the end.
	isRelease bool
	// follows is when the actor stops waiting for a caller that may come at once; zero until it has looked.
	follows time.Time
	// over is closed at the end. IsDone then says that a write was tried, isDelete that the last one was a delete, and err how
	// it ended.
	over             chan struct{}
	isDone, isDelete bool
	err              error
}

// abandoned returns the handover of a grant whose caller has left.
func abandoned(ctx context.Context, granted *v1alpha1.Lock) *handover {
	held := grantOf(granted)
	held.endReason = audit.Abandoned
	return &handover{ctx: context.WithoutCancel(ctx), held: held, over: make(chan struct{})}
}

// handOver has the actor of the lock end a grant of this engine, and waits for that. The actor hands the lock off to a waiter, or
// deletes it if there is none or the API server refuses the waiter. Either write is conditional on the resourceVersion of the
// grant.
func (e *Engine) handOver(given *handover) *handover {
	given.isRelease, given.over = true, make(chan struct{})
	if queue, isNew := e.queues.post(given, e.clock.Now()); isNew {
		e.act(queue, given)
	}
	<-given.over
	return given
}

// post gives a handover to the actor of its lock, and reports whether that is new and must be run.
func (q *queues) post(h *handover, now time.Time) (to *queue, isNew bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	name := nameOf(h.held.lock)
	known, exists := q.byName[name]
	if !exists {
		known = q.begin(name, now, h.held.lock)
	}
	known.handovers = append(known.handovers, h)
	known.abandonRead()
	known.signal()
	return known, !exists
}

// passOn gives the actor a grant whose caller has left. Only the actor calls it.
func (q *queues) passOn(queue *queue, h *handover) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue.handovers = append(queue.handovers, h)
}

// isOver is [queues.endIfIdle] for those that do not have the mutex.
func (q *queues) isOver(queue *queue, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.endIfIdle(queue, now)
}

// handoverStep returns what is next for the first handover.
func (q *queues) handoverStep(queue *queue, now time.Time) step {
	next := queue.handovers[0]
	head := queue.head()
	mayPass := queue.burst.mayGoOn(next.held.lock.UID, now) && remaining(queue.settled, now, settleFor) <= 0
	isFor := head != nil && (next.onlyTo == "" || head.request.Holder == next.onlyTo)
	switch {
	case q.isStopped:
	case isFor && mayPass:
		queue.inFlight, queue.unanswered = head, nil
		queue.handovers = queue.handovers[1:]
		return step{do: handOver, handover: next, waiter: head}
	case head == nil && next.onlyTo == "" && mayPass && next.isRelease:
		if wait := queue.untilFollowed(next, now); wait > 0 {
			return step{do: sleep, pause: wait}
		}
	}
	queue.handovers = queue.handovers[1:]
	return step{do: deleteGrant, handover: next}
}

// untilFollowed returns how long the lock waits for a caller that may come at once: no one waits, and it was handed off a moment
// ago.
func (q *queue) untilFollowed(next *handover, now time.Time) time.Duration {
	if next.follows.IsZero() {
		next.follows = now
		if !q.burst.last.IsZero() && now.Sub(q.burst.last).Abs() <= quickRelease {
			next.follows = now.Add(followFor)
		}
	}
	return remaining(next.follows, now, followFor)
}

// endHandover carries out a handover: to the recipient, which is marked as in flight, or by a delete if it is nil.
func (e *Engine) endHandover(objects Objects, queue *queue, h *handover, recipient *waiter) {
	ctx, cancel := e.detached(h.ctx)
	defer cancel()
	defer close(h.over)
	if recipient == nil && h.onlyTo != "" {
		return
	}
	h.isDone, h.isDelete = true, recipient == nil
	if recipient != nil {
		var found *v1alpha1.Lock
		if found, h.err = e.handOff(ctx, objects, h.held, queue, recipient); h.err == nil {
			return
		}
		h.err = refusal.WithoutOwners(h.err, recipient.request.Owner)
		if MayHaveHappened(h.err) && !errors.Is(h.err, errEnded) {
			e.queues.recordFailure(queue, e.requestError("hand off "+queue.name.String(), h.err, h.held.lock.Spec.Owner), e.clock.Now())
		} else {
			defer func() { e.queues.recordHeld(queue, found, false, e.clock.Now(), e.graceNow()) }()
		}
		// The waiter gets the error of its request when it tries itself.
		h.isDelete = isRefused(h.err) && definitelyNotApplied(h.err) && h.onlyTo == ""
	}
	if h.isDelete {
		h.err = e.deleteGrant(ctx, objects, h.held)
	}
	if h.err == nil || h.isRelease || errors.Is(h.err, errEnded) || refusal.IsNotFound(h.err) {
		return
	}
	h.held.isEnding = h.isDelete && !definitelyNotApplied(h.err)
	e.orphans.add(h.held)
}
