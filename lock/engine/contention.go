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

// step is the next action of a queue's goroutine.
type step struct {
	// isOver says that the queue is empty and was deleted.
	isOver bool
	// dismissed is a waiter whose wait is over, for the given reason.
	dismissed *waiter
	reason    error
	// granted is a waiter that another engine has granted the lock; current is the grant.
	granted *waiter
	// head is the waiter to acquire the lock for; current is the object last seen under the name,
	// or nil, also while the goroutine sleeps.
	head    *waiter
	current *v1alpha1.Lock
	// release is the context of the release that has freed the lock, as far as the engine knows; else nil.
	release context.Context // the wait that it ends is in another goroutine
	// isContended says that the queue has seen the lock held before.
	isContended bool
	// isRecheck says that the lock must be read again.
	isRecheck bool
	// isAwaitingTurn says that the lock must be read again once it is the queue's turn.
	isAwaitingTurn bool
	// pause is how long the goroutine sleeps unless it is woken.
	pause time.Duration
}

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

// next returns the next action of the queue's goroutine. It marks a head that it returns as
// in flight until [queues.recordHeld], [queues.recordFailure] or [queues.remove], and so a waiter that
// was granted the lock elsewhere.
func (q *queues) next(queue *queue, now time.Time, allowance time.Duration) step {
	q.mu.Lock()
	defer q.mu.Unlock()
	next := q.nextStep(queue, now, allowance)
	if !next.isAwaitingTurn {
		q.leaveTurn(queue)
	}
	return next
}

func (q *queues) nextStep(queue *queue, now time.Time, allowance time.Duration) step {
	if queue.inFlight != nil {
		return step{pause: lookAgainAfter}
	}
	granted, isStale := queue.grantedElsewhere(now)
	if current := queue.seen.lock; granted == nil && current != nil && !rules.Expired(current, now) {
		queue.takeOutRepeated(current)
	}
	if found := queue.takeFound(); found != nil {
		return step{dismissed: found, reason: foundElsewhere(found)}
	}
	head := queue.head()
	switch {
	case head == nil:
		delete(q.byName, queue.name)
		q.keepRemains(queue, now)
		return step{isOver: true}
	case q.isStopped:
		queue.takeOut(head)
		return step{dismissed: head, reason: stoppedError(head.request.FullKey())}
	}
	if q.isUnanswered(queue, head, now) {
		queue.takeOut(head)
		return step{dismissed: head, reason: q.timeoutError(queue, head, now)}
	}
	if late := queue.overdueBehind(head); late != nil {
		q.dismiss(queue, late, now)
		return step{dismissed: late, reason: q.timeoutError(queue, late, now)}
	}
	if granted != nil {
		if next, isNext := q.claimStep(queue, granted, isStale, now); isNext {
			return next
		}
	}
	pause := queue.untilDue(now, allowance)
	switch {
	case pause <= 0:
		queue.inFlight, queue.unanswered = head, nil
		head.hasTriedLast = head.isOverdue
		return step{head: head, current: queue.seen.lock, release: queue.release.span, isContended: queue.seen.version != ""}
	case head.isOverdue && !queue.isWaitingForOthers(pause, now):
		q.dismiss(queue, head, now)
		return step{dismissed: head, reason: q.timeoutError(queue, head, now)}
	case queue.seen.lock == nil:
		return step{pause: pause}
	}
	if due := q.untilRecheck(queue, now); due > 0 {
		return step{pause: min(pause, due), current: queue.seen.lock}
	}
	turn := q.awaitTurn(queue, now)
	if turn <= 0 {
		queue.rechecks.at, queue.rechecks.jitter = now, q.random()
		return step{isRecheck: true}
	}
	return step{pause: min(pause, turn), isAwaitingTurn: true, current: queue.seen.lock}
}

// claimStep returns what is next for a waiter that another engine has granted the lock, if it can have that grant
// or has it already.
func (q *queues) claimStep(queue *queue, granted *waiter, isStale bool, now time.Time) (next step, isNext bool) {
	current, head := queue.seen.lock, queue.head()
	switch pause := remaining(queue.backoff.until, now, maxBackoff); {
	case head.isOverdue && (head != granted || queue.backoff.err != nil):
		// Its grant may have one try more. Otherwise a bound that has passed holds, however long claims fail.
		q.dismiss(queue, head, now)
		return step{dismissed: head, reason: q.timeoutError(queue, head, now)}, true
	case isStale, rules.IsRenewed(current):
		queue.takeOut(granted)
		return step{dismissed: granted, reason: foundElsewhere(granted)}, true
	case len(current.Finalizers) > 0, !rules.IsReusable(current):
		return step{}, false
	case pause > 0:
		return step{pause: pause, current: current}, true
	}
	queue.inFlight, queue.unanswered = granted, nil
	return step{granted: granted, current: current}, true
}

// isUnanswered reports whether the head has to be told that the API server does not answer: its wait is for
// a holder, and nothing shows that there is one.
func (q *queues) isUnanswered(queue *queue, head *waiter, now time.Time) bool {
	isUnknown := queue.seen.version == "" && queue.rechecks.provenAt.IsZero()
	return q.maxUnanswered > 0 && queue.backoff.err != nil && isUnknown && now.Sub(head.since) >= q.maxUnanswered
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
		return max(pause, remaining(q.spread.until, now, q.spread.delay))
	}
	return max(pause, rules.UntilReclaimable(q.seen.lock, now, allowance)+q.spread.delay)
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

// recordAcquired records that the head acquired the lock. A new burst of hand-offs begins. It returns the
// context of the release that has ended the lock before, or nil.
func (q *queues) recordAcquired(queue *queue, granted *v1alpha1.Lock, now time.Time) (release context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	release, queue.release = queue.release.span, knownRelease{}
	queue.burst, queue.isYielding = queue.burst.next(now), false
	queue.spread.won()
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
// changed too often to tell. IsLost says that the head has tried and another caller was faster. It
// wakes the queue's goroutine, which waits while another goroutine writes for the head.
func (q *queues) recordHeld(queue *queue, current *v1alpha1.Lock, isLost bool, now time.Time, allowance time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if tried := queue.inFlight; tried != nil {
		tried.hasWaited = true
	}
	queue.inFlight, queue.release = nil, knownRelease{}
	queue.backoff = backoffState{steps: queue.backoff.steps}
	if isLost {
		queue.spread.lost()
		queue.spread.draw(q.random(), q.maxSpread) // for a lock that expires
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
	queue.signal()
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

// beginRecheck records that a recheck begins, which cancel can end. It returns false if the lock is known to be free by
// now, and need not be read.
func (q *queues) beginRecheck(queue *queue, cancel context.CancelFunc) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if queue.seen.lock == nil {
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
// abandoned. A caller that releases the lock may have marked a waiter as in flight meanwhile, and its mark stays.
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
