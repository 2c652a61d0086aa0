package engine

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/rules"
)

// A replica that releases a lock hands it to its own waiters, in one write each, only
// so often and for so long. Then it deletes the lock, and the waiters of all replicas
// contend. Without a bound the others would starve; 64 keeps the cost of that, one
// write more per run, below two per cent.
const (
	maxHandOffs    = 64
	maxHandOffTime = 10 * time.Second
)

// handOffRun counts the hand-offs since other replicas last had a chance.
type handOffRun struct {
	handOffs int
	// since is when the first hand-off was made.
	since time.Time
}

func (r *handOffRun) mayGoOn(now time.Time) bool {
	return r.handOffs == 0 || r.handOffs < maxHandOffs && now.Sub(r.since) < maxHandOffTime
}

func (r *handOffRun) count(now time.Time) {
	if r.handOffs == 0 {
		r.since = now
	}
	r.handOffs++
}

// nextWaiter returns the waiter to hand the lock off to, marked as being tried for, or nil
// if there is none or other replicas are to have a chance.
func (q *queues) nextWaiter(name types.NamespacedName, now time.Time) (*queue, *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue := q.byName[name]
	if queue == nil || queue.granting != nil || queue.head() == nil {
		return nil, nil
	}
	if !queue.run.mayGoOn(now) {
		return nil, nil
	}
	queue.granting = queue.head()
	return queue, queue.granting
}

// skipWaiter removes a waiter that was granted the lock but has left, and returns the next
// one, or nil.
func (q *queues) skipWaiter(queue *queue, gone *waiter) *waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue.waiters.Remove(gone.element)
	queue.granting = queue.head()
	queue.signal()
	return queue.granting
}

// recordHandOff records a hand-off of this engine.
func (q *queues) recordHandOff(queue *queue, granted *v1alpha1.Lock, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue.run.count(now)
	queue.observeGrant(granted, now)
}

// yield has the waiters of this engine stand back when it deletes the lock now: those
// of other replicas learn of it from their informers, and ours would always be quicker.
func (q *queues) yield(name types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if queue := q.byName[name]; queue != nil {
		queue.isYielding = true
	}
}

// recordDeleted records that this engine has deleted the lock, unless the informer was quicker.
// That may not have shown the lock at all yet: in a quick succession of hand-offs it
// never has.
func (q *queues) recordDeleted(name types.NamespacedName, version string, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue := q.byName[name]
	if queue == nil || queue.seen.version != version || queue.seen.lock == nil {
		return
	}
	queue.seen.lock = nil
	queue.yieldUntil = now.Add(yieldFor)
	queue.signal()
}

// releaseGrant ends a grant of this engine for its owner: it hands the lock off to a
// waiter, or deletes it, also where the API server refuses the waiter. Either write is
// conditional on the resourceVersion of the grant.
func (e *Engine) releaseGrant(ctx context.Context, objects Objects, held grant) error {
	queue, recipient := e.queues.nextWaiter(nameOf(held.lock), e.clock.Now())
	if recipient == nil {
		return e.deleteGrant(ctx, objects, held)
	}
	err := e.handOff(ctx, objects, held, queue, recipient)
	if err == nil {
		return nil
	}
	if isRefused(err) {
		// The waiter learns what is wrong with its request when it tries itself.
		err = e.deleteGrant(ctx, objects, held)
	}
	e.queues.recordHeld(queue, nil, false, e.clock.Now(), e.graceNow())
	return err
}

// handOff hands the lock off to a waiter that was marked for it. After an error the caller
// takes off the mark.
func (e *Engine) handOff(ctx context.Context, objects Objects, held grant, queue *queue, recipient *waiter) error {
	granted, err := e.writeHandOff(ctx, objects, held, recipient.request)
	switch {
	case err == nil:
		e.queues.recordHandOff(queue, granted, e.clock.Now())
		e.deliver(ctx, objects, queue, recipient, granted)
	case errors.Is(err, errEnded):
		e.recordRelease(held.lock, held.endReason, held.endedBy, true)
		e.queues.recordHeld(queue, nil, false, e.clock.Now(), e.graceNow())
		err = nil
	}
	return err
}

// isRefused reports whether the API server will not have a write as it is, whatever
// the state of the lock.
func isRefused(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) }

func (e *Engine) deleteGrant(ctx context.Context, objects Objects, held grant) error {
	e.queues.yield(nameOf(held.lock))
	err := deleteExactly(ctx, objects, held.lock.Name, held.lock.UID, held.lock.ResourceVersion)
	if err == nil {
		e.recordRelease(held.lock, held.endReason, held.endedBy, false)
		e.queues.recordDeleted(nameOf(held.lock), held.lock.ResourceVersion, e.clock.Now())
	}
	return err
}

// deliver gives a grant to the waiter that it was made for. If its caller has left, the
// lock is handed off to the next waiter, or ended, unless it has expired.
func (e *Engine) deliver(ctx context.Context, objects Objects, queue *queue, recipient *waiter, granted *v1alpha1.Lock) {
	for {
		now := e.clock.Now()
		if rules.Expired(granted, now) {
			e.queues.remove(queue, recipient)
			recipient.deliver(outcome{err: expiredError(acquireOperation(granted.Spec.FullKey(), granted.Namespace))})
			return
		}
		e.grants.put(granted, now)
		if recipient.deliver(outcome{lock: granted}) {
			e.queues.remove(queue, recipient)
			return
		}
		held := grantOf(granted)
		held.endReason = audit.Abandoned
		e.grants.take(nameOf(held.lock), lock.Proof{Owner: held.lock.Spec.Owner}, e.clock.Now())
		recipient = e.queues.skipWaiter(queue, recipient)
		if recipient == nil {
			if err := e.deleteGrant(ctx, objects, held); err != nil {
				held.isEnding = !isAnswered(err)
				e.orphans.add(held)
			}
			return
		}
		var err error
		if granted, err = e.writeHandOff(ctx, objects, held, recipient.request); err != nil {
			e.orphans.add(held)
			e.queues.recordHeld(queue, nil, false, e.clock.Now(), e.graceNow())
			return
		}
		e.queues.recordHandOff(queue, granted, e.clock.Now())
	}
}

// writeHandOff makes the lock the waiter's in one write. A write that goes unanswered is
// repeated as it is: only one of the two can happen, and either is recognised.
func (e *Engine) writeHandOff(ctx context.Context, objects Objects, held grant, recipient lock.Request) (*v1alpha1.Lock, error) {
	now, err := e.checkedNow(ctx, objects, held.lock.Name)
	if err != nil {
		return nil, err
	}
	next := rules.HandOff(held.lock, recipient.Acquisition, e.limits, e.stamp(now))
	e.prepare(next, v1alpha1.RequestHandOff)
	sent := e.sentGrant(next)
	sent.event, sent.former = audit.HandedOn, &held
	backoff := newBackoff()
	for {
		stored, err := objects.Update(ctx, next, metav1.UpdateOptions{})
		switch {
		case err == nil:
			e.recordGrant(sent, stored)
			return stored, nil
		case sent.isUnanswered && (apierrors.IsConflict(err) || apierrors.IsNotFound(err)):
			var current *v1alpha1.Lock
			if current, err = e.readBack(ctx, objects, next.Name); err == nil {
				stored, err = recognise(sent, held, current)
				if err == nil {
					e.recordGrant(sent, stored)
				}
				return stored, err
			}
		case isAnswered(err) && !sent.isUnanswered:
			return nil, err
		}
		sent.isUnanswered = true
		if !e.pause(ctx, &backoff) {
			e.orphans.add(sent)
			return nil, err
		}
	}
}

// errEnded means that a grant has ended, though not who holds the lock by now.
var errEnded = errors.New("the grant has ended")

// recognise judges by what stands under the name after a hand-off that went
// unanswered. If it is neither the grant that was sent nor the one before, both have
// ended.
func recognise(sent, before grant, current *v1alpha1.Lock) (*v1alpha1.Lock, error) {
	switch {
	case current == nil:
		return nil, errEnded
	case sent.matches(current):
		return current, nil
	case before.matches(current):
		return nil, apierrors.NewConflict(v1alpha1.Resource("locks"), sent.lock.Name, rules.ErrStale)
	}
	return nil, errEnded
}
