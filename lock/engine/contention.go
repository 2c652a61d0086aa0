package engine

import (
	"fmt"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// step is what a queue's goroutine is to do next.
type step struct {
	// isOver says that the queue is empty and was deleted.
	isOver bool
	// dismissed is to be told the reason why its wait is over.
	dismissed *waiter
	reason    error
	// head is to be tried for, on what is known to stand under the name.
	head    *waiter
	current *v1alpha1.Lock
	// isRecheck says that the lock is to be read again; version is the last one seen.
	isRecheck bool
	version   string
	// pause is how long there is nothing to do unless the queue is woken.
	pause time.Duration
}

// next decides what the queue's goroutine does. A head that is to be tried for is
// marked as such until [queues.recordHeld], [queues.recordFailure] or [queues.remove].
func (q *queues) next(queue *queue, now time.Time, allowance time.Duration) step {
	q.mu.Lock()
	defer q.mu.Unlock()
	head := queue.head()
	switch {
	case queue.granting != nil:
		return step{pause: lookAgainAfter}
	case head == nil:
		delete(q.byName, queue.name)
		return step{isOver: true}
	case q.isStopped:
		queue.waiters.Remove(head.element)
		return step{dismissed: head, reason: stoppedError(head.request)}
	}
	pause := queue.untilDue(now, allowance)
	switch {
	case pause <= 0:
		queue.granting = head
		return step{head: head, current: queue.seen.lock}
	case head.isOverdue:
		queue.waiters.Remove(head.element)
		return step{dismissed: head, reason: queue.timeout(head)}
	case queue.isToRecheck(now):
		queue.recheckAt = now.Add(recheckAfter)
		return step{isRecheck: true, version: queue.seen.version}
	case queue.seen.lock != nil && !queue.seen.isConfirmed:
		pause = min(pause, queue.untilRecheck(now))
	}
	return step{pause: pause}
}

// untilDue returns how long the head of the queue has no reason to contend.
func (q *queue) untilDue(now time.Time, allowance time.Duration) time.Duration {
	pause := max(remaining(q.yieldUntil, now, yieldFor), remaining(q.backoff.until, now, maxBackoff))
	if q.seen.lock == nil {
		return pause
	}
	return max(pause, rules.UntilReclaimable(q.seen.lock, now, allowance))
}

func (q *queue) isToRecheck(now time.Time) bool {
	return q.seen.lock != nil && !q.seen.isConfirmed && q.untilRecheck(now) <= 0
}

// untilRecheck returns how long the lock is not to be read, if it is to be at all.
func (q *queue) untilRecheck(now time.Time) time.Duration {
	return max(remaining(q.recheckAt, now, recheckAfter), remaining(q.backoff.until, now, maxBackoff))
}

// remaining returns how long it is until then, which was set to be at most so far
// away. If it is further, the clock was corrected since, and nothing is left.
func remaining(then, now time.Time, most time.Duration) time.Duration {
	left := then.Sub(now)
	if left > most {
		return 0
	}
	return left
}

// timeout is the error of a wait that is over.
func (q *queue) timeout(overdue *waiter) error {
	key := overdue.request.FullKey()
	switch {
	case q.backoff.err != nil:
		return fmt.Errorf("wait for %s: %w", key, q.backoff.err)
	case q.seen.lock != nil:
		return fmt.Errorf("%w: %w", lock.ErrTimeout, rules.HeldBy(q.seen.lock))
	}
	return fmt.Errorf("%w: %w", lock.ErrTimeout, &lock.HeldError{Key: key})
}

// recordAcquired records that the head acquired the lock, with which a run of hand-offs
// begins.
func (q *queues) recordAcquired(queue *queue, granted *v1alpha1.Lock, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue.run, queue.isYielding = handOffRun{}, false
	queue.observeGrant(granted, now)
}

// observeGrant records a grant of this engine.
func (q *queue) observeGrant(granted *v1alpha1.Lock, now time.Time) {
	q.backoff = backoffState{}
	q.seen.update(lock.Change{Lock: granted}, false)
	q.recheckAt = now.Add(recheckAfter)
}

// recordHeld records that another holder has the lock. Current is the object, or nil if
// the holder changed too often to tell. It wakes the queue's goroutine, which does nothing
// while another one writes for the head.
func (q *queues) recordHeld(queue *queue, current *v1alpha1.Lock, isConfirmed bool, now time.Time, allowance time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue.granting = nil
	queue.backoff = backoffState{steps: queue.backoff.steps}
	if current != nil {
		queue.seen.update(lock.Change{Lock: current}, isConfirmed)
		queue.recheckAt = now.Add(recheckAfter)
	}
	if queue.untilDue(now, allowance) <= 0 {
		// The API server judges otherwise, or others are always quicker.
		queue.backoff.failed(nil, now)
	} else {
		queue.backoff.steps = nil
	}
	queue.signal()
}

// recordFailure records that the API server could not be asked.
func (q *queues) recordFailure(queue *queue, err error, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue.granting = nil
	queue.backoff.failed(err, now)
}

// recordRecheck records the object that was read, or that there is none if no change
// became known meanwhile.
func (q *queues) recordRecheck(queue *queue, version string, current *v1alpha1.Lock, isConfirmed bool, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue.backoff = backoffState{}
	queue.recheckAt = now.Add(recheckAfter)
	switch {
	case current != nil:
		queue.seen.update(lock.Change{Lock: current}, isConfirmed)
	case queue.seen.version == version:
		queue.seen.lock = nil
	}
}

// remove takes out a waiter that was tried for: it acquired the lock, or never will.
func (q *queues) remove(queue *queue, tried *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue.granting = nil
	queue.waiters.Remove(tried.element)
	queue.signal()
}

func stoppedError(request lock.Request) error {
	return fmt.Errorf("acquire %s: the engine has stopped: %w", request.FullKey(), lock.ErrUnavailable)
}
