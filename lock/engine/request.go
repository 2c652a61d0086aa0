package engine

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/refusal"
)

// handOffRequest asks the actor of a lock to hand a grant of this engine off to the first waiter: its holder releases it, or its
// caller has left.
type handOffRequest struct {
	ctx  context.Context // that of the release, for [Tracer] and its user; the actor bounds it anew
	held grant
	// isAbandoned says that the caller has left. Otherwise another one waits for done, and sees to the grant if nothing was done.
	isAbandoned bool
	// done is closed at the end. IsTried then says that a hand-off was tried, isDelete that the API server has refused it and the
	// lock was to be deleted, and err how the last write ended.
	done              chan struct{}
	isTried, isDelete bool
	err               error
}

// passOnOrDelete ends a grant of this engine for its owner: by a hand-off to a waiter, or by a delete if there is none or the API
// server refuses the waiter. Either write is conditional on the resourceVersion of the grant. IsDelete says that the error is that
// of a delete.
func (e *Engine) passOnOrDelete(ctx context.Context, objects Objects, held grant) (isDelete bool, err error) {
	queue := e.queues.hold(held.lock, e.clock.Now())
	defer e.queues.letGo(queue)
	given := e.requestHandOff(ctx, held)
	if !given.isTried && e.awaitFollower(ctx, queue, held.lock) {
		given = e.requestHandOff(ctx, held)
	}
	if given.isTried {
		return given.isDelete, given.err
	}
	return true, e.deleteGrant(ctx, objects, held)
}

// requestHandOff has the actor of the lock hand a grant off to the first waiter, and waits for that. Nothing was done if no one waits, if
// the waiters of other engines are to have a chance, or if the actor is writing for a waiter.
func (e *Engine) requestHandOff(ctx context.Context, held grant) *handOffRequest {
	given := &handOffRequest{ctx: ctx, held: held, done: make(chan struct{})}
	if e.queues.post(given, e.clock.Now()) {
		<-given.done
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

func (q *queues) letGo(held *queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	held.holds--
	q.endIfIdle(held)
}

// post gives a request to the actor of its lock, unless that cannot carry it out now.
func (q *queues) post(given *handOffRequest, now time.Time) (isPosted bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue := q.byName[nameOf(given.held.lock)]
	if queue == nil || queue.inFlight != nil || !q.mayHandOff(queue, given, now) {
		return false
	}
	queue.requests = append(queue.requests, given)
	queue.abandonRead()
	queue.signal()
	return true
}

// mayHandOff reports whether the first waiter may have the grant.
func (q *queues) mayHandOff(queue *queue, given *handOffRequest, now time.Time) bool {
	return queue.head() != nil && !q.isStopped && q.known.series(queue.name).mayGoOn(given.held.lock.UID, now) &&
		remaining(queue.settled, now, settleFor) <= 0
}

// passOn gives the actor a grant whose caller has left. Only the actor calls it.
func (q *queues) passOn(ctx context.Context, queue *queue, granted *v1alpha1.Lock) {
	held := abandoned(granted)
	q.mu.Lock()
	defer q.mu.Unlock()
	queue.requests = append(queue.requests, &handOffRequest{ctx: context.WithoutCancel(ctx), held: held, isAbandoned: true, done: make(chan struct{})})
}

// handOffStep returns what is next for the first request that can be carried out.
func (q *queues) handOffStep(queue *queue, now time.Time) (next step, isNext bool) {
	for len(queue.requests) > 0 {
		first := queue.requests[0]
		queue.requests = queue.requests[1:]
		switch {
		case q.mayHandOff(queue, first, now):
			queue.inFlight, queue.unanswered = queue.head(), nil
			return step{do: doHandOff, request: first, waiter: queue.inFlight}, true
		case first.isAbandoned:
			return step{do: doDelete, request: first}, true
		}
		close(first.done)
	}
	return step{}, false
}

// processHandOff hands a grant off to the recipient, which is marked as in flight.
func (e *Engine) processHandOff(objects Objects, queue *queue, given *handOffRequest, recipient *waiter) {
	ctx, cancel := e.detached(given.ctx)
	defer cancel()
	defer close(given.done)
	given.isTried = true
	found, err := e.handOff(ctx, objects, given.held, queue, recipient)
	if err == nil {
		return
	}
	given.err = refusal.WithoutOwners(err, recipient.request.Owner)
	// A waiter that is refused gets the error of its request when it tries itself.
	if given.isDelete = isRefused(err); given.isDelete {
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

// expect returns a channel that is closed when a waiter joins, or has joined by now, if one may follow at once: the lock was handed
// off a moment ago. Otherwise it returns nil.
func (q *queues) expect(queue *queue, uid types.UID, now time.Time) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.isStopped || !q.known.series(queue.name).mayBeFollowed(uid, now) {
		return nil
	}
	if queue.joins == nil {
		queue.joins = make(chan struct{})
	}
	joins := queue.joins
	if queue.head() != nil {
		queue.tellJoined()
	}
	return joins
}

// tellJoined tells the releases that wait for a waiter to join.
func (q *queue) tellJoined() {
	if q.joins != nil {
		close(q.joins)
		q.joins = nil
	}
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
