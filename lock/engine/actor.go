package engine

import (
	"cmp"
	"context"
	"errors"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/refusal"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

// action is what an actor does next. The table of docs/design.md, section 9, says when.
type action string

const (
	// doFinish: no one waits any more.
	doFinish action = "finish"
	// doHandOff grants the lock to a waiter in the write that ends a grant, and doDelete deletes a grant whose caller has left.
	doHandOff action = "hand off"
	doDelete  action = "delete"
	// doDismiss ends the wait of a waiter without the lock.
	doDismiss action = "dismiss"
	// doClaim grants the lock anew to a waiter that another engine has granted it.
	doClaim action = "claim"
	// doTry acquires the lock for the head.
	doTry action = "try"
	// doReread reads the lock.
	doReread action = "re-read"
	// doSleep waits until the actor is woken, or the pause is over.
	doSleep action = "sleep"
)

// step is the next action of an actor.
type step struct {
	do action
	// waiter is the one that it is for; nil if it is for none.
	waiter *waiter
	// reason is why the waiter is dismissed.
	reason error
	// request is for the grant to hand off or to delete.
	request *handOffRequest
	// current is the object last seen under the name, or nil: what a waiter is tried for or claims, or sleeps for.
	current *v1alpha1.Lock
	// release is the context of the release that has freed the lock, as far as the engine knows; else nil.
	release context.Context // the wait that it ends is in another goroutine
	// isContended says that the queue has seen the lock held before.
	isContended bool
	// isAwaitingTurn says that the actor sleeps until it may read the lock.
	isAwaitingTurn bool
	// pause is how long the actor sleeps unless it is woken.
	pause time.Duration
}

// lookAgainAfter is how long an actor sleeps at most: the clock that set its
// timer may have been corrected since.
const lookAgainAfter = 10 * time.Second

// act is the actor of a lock: it hands grants off, and acquires the lock for one waiter after the other. It returns when no one
// waits any more.
func (e *Engine) act(queue *queue) {
	objects := e.objects(queue.name.Namespace)
	var release func()
	for {
		step := e.queues.next(queue, e.clock.Now(), e.graceNow())
		switch step.do {
		case doFinish:
			if release != nil {
				release()
			}
			return
		case doHandOff:
			e.processHandOff(objects, queue, step.request, step.waiter)
		case doDelete:
			e.calls.Go(func() { e.endUndelivered(step.request.ctx, objects, step.request.held) })
		case doDismiss:
			step.waiter.deliver(outcome{err: step.reason})
		case doClaim:
			e.claim(e.working, objects, queue, step.waiter, step.current)
		case doTry:
			e.try(e.working, objects, queue, step)
		case doReread:
			e.recheck(e.working, objects, queue)
		case doSleep:
			if release == nil && step.current != nil && e.keyInformer != nil {
				release = e.keyInformer.Use(queue.name, step.current, false)
			}
			e.sleep(queue, step.pause)
		}
	}
}

func (e *Engine) sleep(queue *queue, wait time.Duration) {
	timer := e.clock.NewTimer(min(wait, lookAgainAfter))
	defer timer.Stop()
	select {
	case <-queue.wake:
	case <-timer.C():
	}
}

// try makes one attempt for the head of the queue. It continues after the caller's context ends:
// every write is followed to its end, and a grant that the caller does not take goes to the next
// waiter.
func (e *Engine) try(ctx context.Context, objects Objects, queue *queue, next step) {
	ctx, cancel := context.WithTimeout(e.tracer.Within(ctx, next.waiter.span), e.timeout)
	defer cancel()
	attempt := acquireAttempt{
		engine: e, objects: objects, namespace: queue.name.Namespace,
		request: next.waiter.request.Acquisition, current: next.current,
		onUnanswered: func(err error) { e.queues.recordUnanswered(queue, err) },
	}
	granted, err := attempt.run(ctx)
	if len(attempt.unanswered) > 0 {
		e.queues.doubtWritesFor(next.waiter)
	}
	now := e.clock.Now()
	switch {
	case err == nil:
		// The watch may show the new grant before its answer is here, and another engine's word may come after its watch.
		if release := cmp.Or(next.release, e.queues.recordAcquired(queue, granted, next.isContended, now)); release != nil {
			e.tracer.EndedBy(next.waiter.span, release) // contexts of other calls
		}
		e.deliver(ctx, objects, queue, next.waiter, granted, attempt.isMisstamped())
	case errors.Is(err, lock.ErrHeld):
		e.queues.recordHeld(queue, attempt.current, next.isContended, now, e.graceNow())
	case errors.Is(err, lock.ErrUnavailable):
		e.queues.recordFailure(queue, err, now)
		e.logUnanswered(err)
	case isQuota(err) && e.queues.recordQuota(queue, err, now):
	default:
		e.queues.remove(queue, next.waiter)
		next.waiter.deliver(outcome{err: err})
	}
}

// recheck reads the lock because the informer has not shown it, or may have missed its end. It returns early if its state
// becomes known otherwise. A lock that expires meanwhile, without its end being seen, waits for the answer.
func (e *Engine) recheck(ctx context.Context, objects Objects, queue *queue) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	if !e.queues.beginRecheck(queue, cancel) {
		return
	}
	current, err := get(ctx, objects, queue.name.Name)
	now := e.clock.Now()
	if err == nil {
		e.queues.recordRecheck(queue, current, now)
		return
	}
	err = e.requestError("read "+queue.name.String(), err)
	if e.queues.recordRecheckFailed(queue, err, now) {
		e.logUnanswered(err)
	}
}

// logUnanswered logs that callers wait although requests for them fail. The operator shows that in its
// metrics instead.
func (e *Engine) logUnanswered(err error) {
	if e.isAdmitted && e.logged.IsDue("unanswered", servertime.Timers(e.clock).Now()) {
		e.log.Error(err, "Requests for locks fail; callers go on waiting")
	}
}

// claim grants the lock anew to a waiter whom another engine has granted it. That engine may end its grant at
// any moment, since it could not tell the caller; after this write it cannot.
func (e *Engine) claim(ctx context.Context, objects Objects, queue *queue, recipient *waiter, current *v1alpha1.Lock) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	held := grantOf(current)
	held.endReason = audit.Abandoned
	_, err := e.handOff(ctx, objects, held, queue, recipient)
	switch {
	case err == nil:
		return
	case refusal.IsConflict(err), refusal.IsNotFound(err), errors.Is(err, errEnded):
		// Another change has come first, and the watch may be late to show it.
		e.queues.recordLost(queue)
		e.recheck(ctx, objects, queue)
		return
	}
	err = e.requestError("claim "+queue.name.String(), err, current.Spec.Owner)
	if errors.Is(err, lock.ErrUnavailable) {
		e.queues.recordFailure(queue, err, e.clock.Now())
		e.logUnanswered(err)
		return
	}
	e.queues.remove(queue, recipient)
	recipient.deliver(outcome{err: err})
}

// next returns the next action of the actor. It marks a head that it returns as
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
	if next, isNext := q.handOffStep(queue, now); isNext {
		return next
	}
	granted, isStale := queue.grantedElsewhere(now)
	if current := queue.seen.lock; granted == nil && current != nil && !rules.Expired(current, now) {
		queue.takeOutRepeated(current)
	}
	if found := queue.takeFound(); found != nil {
		return step{do: doDismiss, waiter: found, reason: foundElsewhere(found)}
	}
	if queue.head() == nil {
		queue.isActing = false
		q.endIfIdle(queue)
		return step{do: doFinish}
	}
	head := queue.head()
	switch {
	case q.isStopped:
		queue.takeOut(head)
		return step{do: doDismiss, waiter: head, reason: stoppedError(head.request.FullKey())}
	}
	if q.isUnanswered(queue, head, now) {
		queue.takeOut(head)
		return step{do: doDismiss, waiter: head, reason: q.timeoutError(queue, head, now)}
	}
	if late := queue.overdueBehind(head); late != nil {
		q.dismiss(queue, late, now)
		return step{do: doDismiss, waiter: late, reason: q.timeoutError(queue, late, now)}
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
		return step{do: doTry, waiter: head, current: queue.seen.lock, release: queue.release.span, isContended: queue.seen.version != ""}
	case head.isOverdue && !queue.isWaitingForOthers(pause, now):
		q.dismiss(queue, head, now)
		return step{do: doDismiss, waiter: head, reason: q.timeoutError(queue, head, now)}
	case queue.seen.lock == nil:
		return step{do: doSleep, pause: pause}
	}
	if due := q.untilRecheck(queue, now); due > 0 {
		return step{do: doSleep, pause: min(pause, due), current: queue.seen.lock}
	}
	turn := q.awaitTurn(queue, now)
	if turn <= 0 {
		queue.rechecks.at, queue.rechecks.jitter = now, q.random()
		return step{do: doReread}
	}
	return step{do: doSleep, pause: min(pause, turn), isAwaitingTurn: true, current: queue.seen.lock}
}

// endIfIdle deletes a queue that has no actor, and that no release keeps.
func (q *queues) endIfIdle(queue *queue) {
	if !queue.isActing && queue.holds == 0 {
		delete(q.byName, queue.name)
	}
}

// claimStep returns what is next for a waiter that another engine has granted the lock, if it can have that grant
// or has it already.
func (q *queues) claimStep(queue *queue, granted *waiter, isStale bool, now time.Time) (next step, isNext bool) {
	current, head := queue.seen.lock, queue.head()
	switch pause := remaining(queue.backoff.until, now, maxBackoff); {
	case head.isOverdue && (head != granted || queue.backoff.err != nil):
		// Its grant may have one try more. Otherwise a bound that has passed holds, however long claims fail.
		q.dismiss(queue, head, now)
		return step{do: doDismiss, waiter: head, reason: q.timeoutError(queue, head, now)}, true
	case isStale, rules.IsRenewed(current):
		queue.takeOut(granted)
		return step{do: doDismiss, waiter: granted, reason: foundElsewhere(granted)}, true
	case len(current.Finalizers) > 0, !rules.IsReusable(current):
		return step{}, false
	case pause > 0:
		return step{do: doSleep, pause: pause, current: current}, true
	}
	queue.inFlight, queue.unanswered = granted, nil
	return step{do: doClaim, waiter: granted, current: current}, true
}

// isUnanswered reports whether the head has to be told that the API server does not answer: its wait is for
// a holder, and nothing shows that there is one.
func (q *queues) isUnanswered(queue *queue, head *waiter, now time.Time) bool {
	isUnknown := queue.seen.version == "" && queue.rechecks.provenAt.IsZero()
	return q.maxUnanswered > 0 && queue.backoff.err != nil && isUnknown && now.Sub(head.since) >= q.maxUnanswered
}
