package engine

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// maxBackoff is how long a queue pauses at most before it contends again: half of the time within
// which a waiter is served once requests get through again.
const maxBackoff = time.Second

// backoffState says why, and until when, the queue does not contend.
type backoffState struct {
	// err is nil if the API server refused a lock that seems to be free.
	err   error
	until time.Time
	steps *wait.Backoff
}

func (b *backoffState) failed(err error, now time.Time) {
	if b.steps == nil {
		b.steps = new(newBackoff())
	}
	b.err, b.until = err, now.Add(min(b.steps.Step(), maxBackoff))
}

// hasTryLeft reports whether the head has one try more, for which it does not draw lots with the heads of other engines: its
// wait is over, and it would be told otherwise that the lock is held, which is free.
func (q *queue) hasTryLeft() bool {
	head := q.head()
	return q.seen.lock == nil && head != nil && head.isOverdue && !head.hasTriedLast
}

// untilDue returns how long the head must not contend yet.
func (q *queue) untilDue(now time.Time, allowance time.Duration) time.Duration {
	pause := q.untilOthersHaveCome(now)
	if q.hasTryLeft() && q.backoff.err == nil {
		return pause
	}
	pause = max(pause, remaining(q.backoff.until, now, maxBackoff))
	if q.seen.lock == nil {
		return max(pause, remaining(q.freedAt.Add(q.delay), now, q.delay))
	}
	return max(pause, rules.UntilReclaimable(q.seen.lock, now, allowance)+q.delay)
}

// untilOthersHaveCome returns how long the head must let those go ahead who may have their places before it, and the
// waiters of other engines after a delete of this one.
func (q *queue) untilOthersHaveCome(now time.Time) time.Duration {
	return max(remaining(q.settled, now, settleFor), remaining(q.yieldUntil, now, yieldFor))
}

// isWaitingForOthers reports whether the head of a free lock pauses for them alone: it has a try when they have come.
func (q *queue) isWaitingForOthers(pause time.Duration, now time.Time) bool {
	return q.hasTryLeft() && pause <= q.untilOthersHaveCome(now)
}

// remaining returns the time until then, which was set to be at most that far away. If it is
// further away, the clock was corrected since, and the result is zero.
func remaining(then, now time.Time, most time.Duration) time.Duration {
	left := then.Sub(now)
	if left > most {
		return 0
	}
	return left
}

// timeoutError returns the error for a waiter whose wait is over. That the lock is held is said
// only if it is known.
func (q *queues) timeoutError(queue *queue, overdue *waiter, now time.Time) error {
	key := overdue.request.FullKey()
	switch {
	case queue.backoff.err != nil:
		return fmt.Errorf("wait for %s: %w", key, queue.backoff.err)
	case queue.inFlight == overdue && queue.unanswered != nil:
		return fmt.Errorf("wait for %s: %w", key, queue.unanswered)
	case !q.isProven(queue, now):
		return fmt.Errorf("wait for %s: the watch of locks is behind, and the lock could not be read in time: %w", key, lock.ErrUnavailable)
	case queue.seen.lock != nil:
		return fmt.Errorf("%w: %w", lock.ErrTimeout, rules.HeldAt(queue.seen.lock, now))
	}
	return fmt.Errorf("%w: %w", lock.ErrTimeout, &lock.HeldError{Key: key})
}

// recordAcquired records that the head acquired the lock, before other engines if it is contended. It returns the
// context of the release that has ended the lock before, or nil.
func (q *queues) recordAcquired(queue *queue, granted *v1alpha1.Lock, isContended bool, now time.Time) (release context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	release, queue.release = queue.release.span, knownRelease{}
	queue.isYielding = false
	if isContended && queue.hasLost {
		q.spread.won()
	}
	q.observeGrant(queue, granted, now)
	return release
}

// observeGrant records a grant of this engine.
func (q *queues) observeGrant(queue *queue, granted *v1alpha1.Lock, now time.Time) {
	queue.backoff = backoffState{}
	queue.seen.update(lock.Change{Lock: granted}, false)
	q.proven(queue, now)
}

// recordHeld records that another holder has the lock. Current is the object, or nil if the holder
// changed too often to tell. IsLost says that the head has tried and another caller was faster.
func (q *queues) recordHeld(queue *queue, current *v1alpha1.Lock, isLost bool, now time.Time, allowance time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if tried := queue.inFlight; tried != nil {
		tried.hasWaited = true
	}
	queue.inFlight, queue.release = nil, knownRelease{}
	queue.backoff = backoffState{steps: queue.backoff.steps}
	if isLost {
		q.spread.lost()
		queue.hasLost = true
		queue.delay = q.drawDelay(queue) // for a lock that expires
	}
	if current != nil {
		queue.seen.update(lock.Change{Lock: current}, q.hasObserved(current))
		q.proven(queue, now)
	}
	if queue.untilDue(now, allowance) <= 0 && !queue.hasTryLeft() {
		// The API server judges the lock differently, or other callers are always quicker.
		queue.backoff.failed(nil, now)
	} else {
		queue.backoff.steps = nil
	}
}

// recordUnanswered records that a write for the head went unanswered, and is looked for.
func (q *queues) recordUnanswered(queue *queue, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue.unanswered = err
}

// recordFailure records that a try for the head failed.
func (q *queues) recordFailure(queue *queue, err error, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue.inFlight = nil
	queue.backoff.failed(err, now)
}

// recordQuota is recordFailure for a try that exceeds a quota, if the lock was deleted a moment ago:
// the quota may not have counted the delete yet. It returns false, and records nothing, if the head
// is to be told of the refusal.
func (q *queues) recordQuota(queue *queue, err error, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if remaining(queue.freedAt.Add(maxQuotaLag), now, maxQuotaLag) <= 0 {
		return false
	}
	queue.inFlight = nil
	queue.backoff.failed(err, now)
	return true
}

// beginRecheck records that a recheck begins, which cancel can end. It returns false if the lock need not be read: it is known
// to be free by now, or is about to be handed off.
func (q *queues) beginRecheck(queue *queue, cancel context.CancelFunc) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if queue.seen.lock == nil || len(queue.requests) > 0 {
		return false
	}
	queue.cancelRead = cancel
	return true
}

// abandonRead ends a recheck that is under way, since its answer is known.
func (q *queue) abandonRead() {
	if q.cancelRead != nil {
		q.cancelRead()
		q.cancelRead = nil
	}
}

// recordRecheckFailed records a recheck that has failed. It returns false, and records nothing, for one that was
// abandoned.
func (q *queues) recordRecheckFailed(queue *queue, err error, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if queue.cancelRead == nil {
		return false
	}
	queue.cancelRead = nil
	queue.backoff.failed(err, now)
	return true
}

// recordRecheck records the object that was read, or nil: [queues.recordNotFound] knows then what has ended.
func (q *queues) recordRecheck(queue *queue, current *v1alpha1.Lock, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue.backoff = backoffState{}
	q.proven(queue, now)
	if current != nil {
		queue.seen.update(lock.Change{Lock: current}, q.hasObserved(current))
	}
}

// recordLost records that a claim has met another change of the lock.
func (q *queues) recordLost(queue *queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue.inFlight = nil
}

// remove takes out a waiter that has acquired the lock or never will.
func (q *queues) remove(queue *queue, tried *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue.inFlight = nil
	queue.takeOut(tried)
	queue.signal()
}

func foundElsewhere(of *waiter) error {
	return fmt.Errorf("wait for %s: %w", of.request.FullKey(), lock.ErrFoundElsewhere)
}

func stoppedError(key v1alpha1.FullKey) error {
	return fmt.Errorf("acquire %s: the engine has stopped: %w", key, lock.ErrUnavailable)
}
