package engine

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/refusal"
)

// handover is a grant of this engine that the actor of its lock is to hand off to the first waiter: its holder releases it, or its
// caller has left.
type handover struct {
	ctx  context.Context // that of the release, for [Tracer] and its user; the actor bounds it anew
	held grant
	// isToSameHolder says that the waiter must be of the same holder.
	isToSameHolder bool
	// isAbandoned says that the caller has left. Otherwise another one waits for over, and sees to the grant if nothing was done.
	isAbandoned bool
	// over is closed at the end. IsTaken then says that a hand-off was tried, isDelete that the API server has refused it and the
	// lock was to be deleted, and err how the last write ended.
	over              chan struct{}
	isTaken, isDelete bool
	err               error
}

// releaseGrant ends a grant of this engine for its owner: by a hand-off to a waiter, or by a delete if there is none or the API
// server refuses the waiter. Either write is conditional on the resourceVersion of the grant. IsDelete says that the error is that
// of a delete.
func (e *Engine) releaseGrant(ctx context.Context, objects Objects, held grant) (isDelete bool, err error) {
	queue := e.queues.hold(held.lock, e.clock.Now())
	defer func() { e.queues.letGo(queue, e.clock.Now()) }()
	given := e.handOver(ctx, held, false)
	if !given.isTaken && e.awaitFollower(ctx, queue, held.lock) {
		given = e.handOver(ctx, held, false)
	}
	if given.isTaken {
		return given.isDelete, given.err
	}
	return true, e.deleteGrant(ctx, objects, held)
}

// handOver has the actor of the lock hand a grant off to the first waiter, and waits for that. Nothing was done if no one waits, if
// the waiters of other engines are to have a chance, or if the actor is writing for a waiter.
func (e *Engine) handOver(ctx context.Context, held grant, isToSameHolder bool) *handover {
	given := &handover{ctx: ctx, held: held, isToSameHolder: isToSameHolder, over: make(chan struct{})}
	if e.queues.post(given, e.clock.Now()) {
		<-given.over
	}
	return given
}

// hold returns the queue of a grant that is about to end, and keeps it until letGo: a caller that comes meanwhile knows the lock,
// and need not read it.
func (q *queues) hold(ending *v1alpha1.Lock, now time.Time) *queue {
	q.mu.Lock()
	defer q.mu.Unlock()
	held := q.byName[nameOf(ending)]
	if held == nil {
		held = q.begin(nameOf(ending), now, ending)
	}
	held.holds++
	return held
}

func (q *queues) letGo(held *queue, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	held.holds--
	q.endIfIdle(held, now)
}

// post gives a handover to the actor of its lock, unless that cannot take it now.
func (q *queues) post(given *handover, now time.Time) (isPosted bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue := q.byName[nameOf(given.held.lock)]
	if queue == nil || queue.inFlight != nil || !q.mayHandOver(queue, given, now) {
		return false
	}
	queue.handovers = append(queue.handovers, given)
	queue.abandonRead()
	queue.signal()
	return true
}

// mayHandOver reports whether the first waiter may have the grant.
func (q *queues) mayHandOver(queue *queue, given *handover, now time.Time) bool {
	head := queue.head()
	isFor := head != nil && (!given.isToSameHolder || head.request.Holder == given.held.lock.Spec.Holder)
	return isFor && !q.isStopped && queue.burst.mayGoOn(given.held.lock.UID, now) && remaining(queue.settled, now, settleFor) <= 0
}

// passOn gives the actor a grant whose caller has left. Only the actor calls it.
func (q *queues) passOn(ctx context.Context, queue *queue, granted *v1alpha1.Lock) {
	held := grantOf(granted)
	held.endReason = audit.Abandoned
	q.mu.Lock()
	defer q.mu.Unlock()
	queue.handovers = append(queue.handovers, &handover{ctx: context.WithoutCancel(ctx), held: held, isAbandoned: true, over: make(chan struct{})})
}

// handoverStep returns what is next for the first handover that can be carried out.
func (q *queues) handoverStep(queue *queue, now time.Time) (next step, isNext bool) {
	for len(queue.handovers) > 0 {
		first := queue.handovers[0]
		queue.handovers = queue.handovers[1:]
		switch {
		case q.mayHandOver(queue, first, now):
			queue.inFlight, queue.unanswered = queue.head(), nil
			return step{do: handOver, handover: first, waiter: queue.inFlight}, true
		case first.isAbandoned:
			return step{do: deleteGrant, handover: first}, true
		}
		close(first.over)
	}
	return step{}, false
}

// takeHandover hands a grant off to the recipient, which is marked as in flight.
func (e *Engine) takeHandover(objects Objects, queue *queue, given *handover, recipient *waiter) {
	ctx, cancel := e.detached(given.ctx)
	defer cancel()
	defer close(given.over)
	given.isTaken = true
	found, err := e.handOff(ctx, objects, given.held, queue, recipient)
	if err == nil {
		return
	}
	given.err = refusal.WithoutOwners(err, recipient.request.Owner)
	// A waiter that is refused gets the error of its request when it tries itself.
	if given.isDelete = isRefused(err) && !given.isToSameHolder; given.isDelete {
		given.err = e.deleteGrant(ctx, objects, given.held)
	}
	if isUnknown := MayHaveHappened(err) && !errors.Is(err, errEnded); isUnknown {
		e.queues.recordFailure(queue, e.requestError("hand off "+queue.name.String(), given.err, given.held.lock.Spec.Owner), e.clock.Now())
	} else {
		e.queues.recordHeld(queue, found, false, e.clock.Now(), e.graceNow())
	}
	if given.isAbandoned && given.err != nil && !errors.Is(err, errEnded) && !refusal.IsNotFound(given.err) {
		given.held.isEnding = given.isDelete && !definitelyNotApplied(given.err)
		e.orphans.add(given.held)
	}
}

// deleteAbandoned deletes a grant whose caller has left, beside the actor: whoever waits learns of its end by the watch at once.
func (e *Engine) deleteAbandoned(given *handover) {
	e.calls.Go(func() {
		ctx, cancel := e.detached(given.ctx)
		defer cancel()
		held := given.held
		if err := e.deleteGrant(ctx, e.objects(held.lock.Namespace), held); err != nil && !refusal.IsNotFound(err) {
			held.isEnding = !definitelyNotApplied(err)
			e.orphans.add(held)
		}
	})
}

// expect returns a channel that is closed when a waiter joins, if one may follow at once: no one waits, and the lock was handed
// off a moment ago. Otherwise it returns nil.
func (q *queues) expect(queue *queue, uid types.UID, now time.Time) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	isQuick := !queue.burst.last.IsZero() && now.Sub(queue.burst.last).Abs() <= quickRelease
	if q.isStopped || queue.head() != nil || !isQuick || !queue.burst.mayGoOn(uid, now) {
		return nil
	}
	if queue.joins == nil {
		queue.joins = make(chan struct{})
	}
	return queue.joins
}

// awaitFollower reports whether a caller has come to wait for a lock that is about to be released, for which no one
// waited. It waits for one that may come at the same moment, for followFor at most, and until ctx ends.
func (e *Engine) awaitFollower(ctx context.Context, queue *queue, held *v1alpha1.Lock) bool {
	joins := e.queues.expect(queue, held.UID, e.clock.Now())
	if joins == nil {
		return false
	}
	timer := e.clock.NewTimer(followFor)
	defer timer.Stop()
	select {
	case <-joins:
		return true
	case <-timer.C():
	case <-ctx.Done():
	}
	return false
}
