package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/observe"
	"forrst.dev/lock-operator/lock/refusal"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

func (q *queues) recordHandOff(queue *queue, granted *v1alpha1.Lock, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.known.countHandOff(granted, now)
	queue.isYielding = false
	q.observeGrant(queue, granted, now)
}

// recordLapsed ends the wait of a caller whose grant is over before it could have it. Its place is kept.
func (q *queues) recordLapsed(queue *queue, recipient *waiter, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue.inFlight = nil
	q.dismiss(queue, recipient, now)
	queue.signal()
}

// yield makes the waiters of this engine pause after it deletes the lock: waiters of other
// replicas learn of the delete from their informers, and the local ones would always be quicker.
func (q *queues) yield(name types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if queue := q.byName[name]; queue != nil {
		queue.isYielding = true
	}
}

// recordDeleted records that this engine has deleted the lock, unless the informer has reported it already. Its waiters
// stand back.
func (q *queues) recordDeleted(deleted *v1alpha1.Lock, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if queue := q.end(deleted, now); queue != nil {
		queue.isYielding, queue.yieldUntil = true, now.Add(yieldFor)
	}
}

// recordNotFound records that an answer of the API server shows that the object is gone. Its waiters stand back only if
// this engine is deleting it: then the answer may be to a delete that was repeated.
func (q *queues) recordNotFound(gone *v1alpha1.Lock, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if queue := q.end(gone, now); queue != nil && queue.isYielding {
		queue.yieldUntil = now.Add(yieldFor)
	}
}

// end takes in that an object has ended. It never comes back, whatever its last version was: it may have been renewed
// through another engine. In a quick succession of hand-offs the informer may never have shown the lock. A try for the
// head that is under way may yet report that it was held. It returns the queue whose lock is free by that, or nil.
func (q *queues) end(of *v1alpha1.Lock, now time.Time) *queue {
	queue := q.byName[nameOf(of)]
	if queue == nil || !queue.seen.end(of) {
		return nil
	}
	q.freed(queue, now)
	queue.signal()
	return queue
}

// handOff hands the lock off to a waiter that is marked as in flight. After an error its caller
// removes the mark by [queues.recordHeld] with the object that was found under the name, or nil. The error is errEnded if
// the grant is over, which a write that went unanswered may have done.
func (e *Engine) handOff(ctx context.Context, objects Objects, held grant, queue *queue, recipient *waiter) (found *v1alpha1.Lock, err error) {
	current, isMisstamped, err := e.writeHandOff(ctx, objects, held, recipient.request.Acquisition, func(err error) {
		e.queues.recordUnanswered(queue, e.requestError("hand off "+queue.name.String(), err, held.lock.Spec.Owner, recipient.request.Owner))
	})
	switch {
	case err == nil:
		e.queues.recordHandOff(queue, current, e.clock.Now())
		e.tracer.EndedBy(recipient.span, ctx)
		e.deliver(ctx, objects, queue, recipient, current, isMisstamped)
	case errors.Is(err, errEnded):
		e.recordEnd(held.lock, held.endReason, held.endedBy, true)
	case !definitelyNotApplied(err):
		e.queues.doubtWritesFor(recipient)
	}
	return current, err
}

// isRefused reports whether the API server rejects the write regardless of the lock's state.
func isRefused(err error) bool {
	_, isRefused := refusal.Of(err)
	return definitelyNotApplied(err) && (isRefused || apierrors.IsInvalid(err) || apierrors.IsForbidden(err))
}

// deleteGrant deletes a grant that this engine has made and not seen to end. If it is gone, it may
// have been this delete; see [Engine.recordEnd].
func (e *Engine) deleteGrant(ctx context.Context, objects Objects, held grant) error {
	e.queues.yield(nameOf(held.lock))
	e.announceDelete(ctx, held.lock)
	err := deleteExactly(ctx, objects, held.lock.Name, held.lock.UID, held.lock.ResourceVersion)
	if err == nil || refusal.IsNotFound(err) {
		e.recordEnd(held.lock, held.endReason, held.endedBy, err != nil)
	}
	if err == nil {
		e.recordGone(held.lock)
	}
	return err
}

// recordGone takes in that this engine has ended an object, before the informer tells. The UID of one whose create went
// unanswered is not known.
func (e *Engine) recordGone(ended *v1alpha1.Lock) {
	if ended.UID == "" {
		return
	}
	e.lockCache.forget(nameOf(ended), ended.UID)
	e.queues.recordDeleted(ended, e.clock.Now())
}

// recordNotFound is recordGone for an object, or nil, that an answer of the API server shows to be gone. [noted] calls it
// for each.
func (e *Engine) recordNotFound(gone *v1alpha1.Lock) {
	if gone == nil || gone.UID == "" {
		return
	}
	e.lockCache.forget(nameOf(gone), gone.UID)
	e.queues.recordNotFound(gone, e.clock.Now())
}

// abandoned is a grant that its caller does not get.
func abandoned(granted *v1alpha1.Lock) grant {
	held := grantOf(granted)
	held.endReason = audit.Abandoned
	return held
}

// endUndelivered ends a grant that its caller does not get: the caller has left, or the grant expired before the caller learnt of
// it, or is misstamped. If that fails, the grant becomes an orphan.
func (e *Engine) endUndelivered(ctx context.Context, objects Objects, held grant) {
	ctx, cancel := e.detached(ctx)
	defer cancel()
	queue := e.queues.hold(held.lock, e.clock.Now())
	defer e.queues.letGo(queue)
	if err := e.deleteGrant(ctx, objects, held); err != nil && !refusal.IsNotFound(err) {
		held.isEnding = !definitelyNotApplied(err)
		e.orphans.add(held)
	}
}

// undeliveredError is for the caller of [Engine.endUndelivered].
func undeliveredError(operation string, undelivered *v1alpha1.Lock, isMisstamped bool) error {
	if isMisstamped {
		return fmt.Errorf("%s: the clock that stamped the grant was wrong: %w", operation, lock.ErrUnavailable)
	}
	return fmt.Errorf("%s: the grant expired before it was answered: %w", operation, cmp.Or(rules.Lapsed(undelivered.Spec.TTL.Duration), lock.ErrUnavailable))
}

// deliver gives a grant to its waiter. If the caller has left, the actor passes the grant on. It ends one that has expired by
// now or is misstamped, and tells the caller so. One that was found by its ID may have been renewed: it stays.
func (e *Engine) deliver(ctx context.Context, objects Objects, queue *queue, recipient *waiter, granted *v1alpha1.Lock, isMisstamped bool) {
	now := e.clock.Now()
	isRenewed := rules.IsRenewed(granted) // Its caller has found it by another call, and goes on with it.
	if isMisstamped && !isRenewed || rules.Expired(granted, now) {
		e.queues.recordLapsed(queue, recipient, now)
		e.calls.Go(func() { // Beside the actor, which others wait for.
			e.endUndelivered(ctx, objects, abandoned(granted))
			recipient.deliver(outcome{err: undeliveredError("acquire "+string(recipient.request.FullKey()), granted, isMisstamped)})
		})
		return
	}
	e.lockCache.put(granted, now)
	e.queues.remove(queue, recipient) // Before it may release the lock.
	if !recipient.deliver(outcome{lock: granted}) && !isRenewed {
		e.lockCache.take(nameOf(granted), lock.Proof{Owner: granted.Spec.Owner}, now)
		e.queues.passOn(ctx, queue, granted)
	}
}

// writeHandOff grants the lock to the waiter in one write. It looks whether an unanswered write has happened, and repeats it
// unchanged as long as it still can: only one of the two can happen, and either is recognised. It reports whether its
// clock was wrong. Current is the new grant or, with an error, what was read under the name instead; nil if nothing was.
func (e *Engine) writeHandOff(ctx context.Context, objects Objects, held grant, recipient rules.Acquisition, onUnanswered func(error)) (current *v1alpha1.Lock, isMisstamped bool, err error) {
	now := servertime.Read(e.clock)
	desired := rules.HandOff(held.lock, recipient, e.limits, e.stamp(now.Time))
	e.clearStamps(desired, v1alpha1.RequestHandOff)
	current, err = e.sendHandOff(ctx, objects, held, desired, onUnanswered)
	return current, e.isMisstamped(now), err
}

func (e *Engine) sendHandOff(ctx context.Context, objects Objects, held grant, desired *v1alpha1.Lock, onUnanswered func(error)) (*v1alpha1.Lock, error) {
	sent := grant{grantAudit: grantAudit{event: audit.HandedOn, former: &held}}
	var unanswered error // that of the first try without an answer
	backoff := newBackoff()
	for {
		stored, err := objects.Update(ctx, desired, metav1.UpdateOptions{})
		if err == nil {
			if unanswered != nil {
				e.observer.Unanswered(observe.HandOff, observe.NotHappened)
			}
			e.recordGrant(sent, stored)
			return stored, nil
		}
		isRefused := definitelyNotApplied(err)
		if isRefused && unanswered == nil && !refusal.IsConflict(err) {
			return nil, err
		}
		if unanswered == nil && !isRefused {
			unanswered = err
			onUnanswered(err)
		}
		sent.lock = e.sentGrant(desired).lock
		current, readErr := e.readBack(ctx, objects, held.lock.Name)
		if readErr != nil && unanswered == nil {
			unanswered = err // A conflict with the first try may be one with itself: a proxy on the way may have repeated it.
		}
		sent.isUnanswered = unanswered != nil
		switch hasHappened := current != nil && sent.matches(current); {
		case hasHappened:
			if unanswered != nil {
				e.observer.Unanswered(observe.HandOff, observe.Happened)
			}
			e.recordGrant(sent, current)
			return current, nil
		case readErr == nil && unanswered == nil:
			return current, err
		case readErr == nil && !isSameState(current, held.lock): // No try can happen any more.
			e.observer.Unanswered(observe.HandOff, observe.NotHappened)
			if current != nil && held.matches(current) {
				return current, apierrors.NewConflict(v1alpha1.Resource("locks"), desired.Name, rules.ErrStale)
			}
			return current, errEnded
		}
		isFinal := isRefused && !neverSent(err) && !apierrors.IsTooManyRequests(err)
		if readErr != nil || isFinal || !e.pause(ctx, &backoff) {
			e.observer.Unanswered(observe.HandOff, observe.Unknown)
			e.orphans.add(sent)
			return nil, &unansweredError{unanswered}
		}
	}
}

// errEnded means that a grant has ended; the present holder is unknown.
var errEnded = errors.New("the grant has ended")
