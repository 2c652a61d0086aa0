package engine

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/servertime"
)

const (
	// lookAgainAfter is how long the queue's goroutine sleeps at most: the clock that set its
	// timer may have been corrected since.
	lookAgainAfter = 10 * time.Second
	// yieldFor is how long a queue pauses after a burst of hand-offs, unless its informer reports
	// the delete earlier.
	yieldFor = 50 * time.Millisecond
	// headStart is how long the queue pauses after that report: if another replica has waiters,
	// its create is then under way.
	headStart = 3 * time.Millisecond
)

// acquireOrWait joins the queue of the lock. It returns when the lock is acquired or the wait is
// over. It makes no request unless the caller is the head of the queue and the lock may be free. Of a
// grant it tells whether the caller had to wait for others.
func (e *Engine) acquireOrWait(ctx context.Context, namespace string, request lock.Request) (granted *v1alpha1.Lock, hasWaited bool, err error) {
	span := e.tracer.BeginWait(ctx, namespace, request.FullKey())
	defer func() { e.tracer.EndWait(span, err) }()
	name := types.NamespacedName{Namespace: namespace, Name: request.FullKey().ObjectName()}
	queue, joined, isNew := e.queues.add(span, name, request, e.clock.Now(), e.grants.isKnown)
	if isNew {
		// The queue's goroutine ends with its last waiter.
		e.calls.Add(1)
		go e.contend(e.working, queue) //nolint:contextcheck // the queue serves all callers
	}

	var overdue <-chan time.Time
	if request.Wait < lock.WaitForever {
		timer := e.clock.NewTimer(request.Wait)
		defer timer.Stop()
		overdue = timer.C()
	}
	for {
		select {
		case result := <-joined.outcome:
			return result.lock, joined.hasWaited, result.err
		case <-ctx.Done():
			known := e.queues.leave(queue, joined, e.clock.Now())
			return nil, false, lock.Interrupted(ctx, request.FullKey(), known)
		case <-overdue:
			if err := e.queues.giveUp(queue, joined, e.clock.Now()); err != nil {
				return nil, false, err
			}
		}
	}
}

// contend acquires the lock for one waiter after the other. It returns after the last.
func (e *Engine) contend(ctx context.Context, queue *queue) {
	defer e.calls.Done()
	objects := e.objects(queue.name.Namespace)
	var release func()
	for {
		step := e.queues.next(queue, e.clock.Now(), e.graceNow())
		switch {
		case step.isOver:
			if release != nil {
				release()
			}
			if step.isLapsed {
				e.endUndelivered(ctx, objects, step.current)
			}
			return
		case step.dismissed != nil:
			step.dismissed.deliver(outcome{err: step.reason})
		case step.isRecheck:
			e.recheck(ctx, objects, queue, step.version)
		case step.head != nil:
			e.try(ctx, objects, queue, step)
		default:
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
	ctx, cancel := context.WithTimeout(e.tracer.Within(ctx, next.head.span), e.timeout)
	defer cancel()
	attempt := acquireAttempt{
		engine: e, objects: objects, namespace: queue.name.Namespace,
		request: next.head.request.Acquisition, current: next.current, isLapsed: next.isLapsed,
	}
	granted, err := attempt.run(ctx)
	now := e.clock.Now()
	switch {
	case err == nil:
		if release := e.queues.recordAcquired(queue, granted, now); release != nil {
			e.tracer.EndedBy(next.head.span, release) //nolint:contextcheck // contexts of other calls
		}
		e.deliver(ctx, objects, queue, next.head, granted, false)
	case errors.Is(err, lock.ErrHeld):
		e.queues.recordHeld(queue, attempt.current, next.isContended, now, e.graceNow())
	case errors.Is(err, lock.ErrUnavailable):
		e.queues.recordFailure(queue, err, now)
		e.logUnanswered(err)
	case isQuota(err) && e.queues.recordQuota(queue, err, now):
	default:
		e.queues.remove(queue, next.head)
		next.head.deliver(outcome{err: err})
	}
}

// recheck reads the lock because the informer has not shown it, or may have missed its end.
func (e *Engine) recheck(ctx context.Context, objects Objects, queue *queue, version string) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	current, err := get(ctx, objects, queue.name.Name)
	now := e.clock.Now()
	if err != nil {
		err = e.requestError("read "+queue.name.String(), err)
		e.queues.recordRecheckFailed(queue, err, now)
		e.logUnanswered(err)
		return
	}
	e.queues.recordRecheck(queue, version, current, now)
}

// logUnanswered logs that callers wait although requests for them fail. The operator shows that in its
// metrics instead.
func (e *Engine) logUnanswered(err error) {
	if e.isAdmitted && e.logged.IsDue("unanswered", servertime.Timers(e.clock).Now()) {
		e.log.Error(err, "Requests for locks fail; callers go on waiting")
	}
}
