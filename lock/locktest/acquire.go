package locktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// Acquire implements [lock.Backend]. A request without owner or holder gets those of [WithOwner]
// and [WithHolder].
func (b *Backend) Acquire(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error) {
	call := Call{Verb: Acquire, Namespace: namespace, Key: request.FullKey(), Request: request}
	return do(ctx, b, call, func(hooks Hooks) (*v1alpha1.Lock, error) {
		return b.acquire(ctx, namespace, request, func() error { return hooks.Waiting.run(ctx, call) })
	})
}

// acquire calls waiting after it has joined the queue.
func (b *Backend) acquire(ctx context.Context, namespace string, request lock.Request, waiting func() error) (*v1alpha1.Lock, error) {
	if request.Owner == "" {
		request.Owner = cmp.Or(b.owner, lock.NewOwner())
	}
	if request.Holder == "" {
		request.Holder = b.holder
	}
	began := b.clock.Now()
	if _, err := request.Validate(b.limits); err != nil {
		return nil, err
	}
	granted, joined, err := b.acquireOrJoin(ctx, namespace, request, began)
	if joined == nil {
		return granted, err
	}
	if err := waiting(); err != nil {
		return nil, b.endWait(joined, err)
	}
	return b.await(joined)
}

// acquireOrJoin takes the lock. If it is held and the request has a wait, it joins the queue.
func (b *Backend) acquireOrJoin(ctx context.Context, namespace string, request lock.Request, began time.Time) (*v1alpha1.Lock, *waiter, error) {
	var granted *v1alpha1.Lock
	var joined *waiter
	err := b.withEntry(namespace, request.FullKey(), "acquire", func(e *entry, now time.Time) error {
		switch {
		case !e.isHeld(now):
			granted = b.grant(e, request.Acquisition, now).DeepCopy()
			e.takeOutRepeated(granted)
		case request.Wait > 0:
			joined = e.join(ctx, request, began)
		default:
			return rules.HeldBy(e.lock)
		}
		return nil
	})
	return granted, joined, err
}

// await returns when the lock is acquired or the wait is over.
func (b *Backend) await(joined *waiter) (*v1alpha1.Lock, error) {
	var overdue <-chan time.Time
	if !joined.deadline.IsZero() {
		timer := timerAt(b.clock, joined.deadline)
		defer timer.Stop()
		overdue = timer.C()
	}
	for {
		// Set the timer before checking; otherwise a step of the clock in between is missed.
		expiry, stop := b.expiryTimer(joined)
		if granted, isOver, err := b.checkWait(joined); isOver {
			stop()
			return granted, err
		}
		select {
		case <-joined.woken:
		case <-expiry:
		case <-overdue:
		case <-joined.ctx.Done():
		}
		stop()
	}
}

// expiryTimer fires for the head of the queue when the lock expires, and for no other waiter.
func (b *Backend) expiryTimer(joined *waiter) (expiry <-chan time.Time, stop func()) {
	b.mu.Lock()
	e := joined.entry
	var end *v1alpha1.Timestamp
	if e.head() == joined && e.lock != nil && !b.isUnavailable {
		end = e.lock.Spec.ExpireTime
	}
	b.mu.Unlock()
	if end == nil {
		return nil, func() {}
	}
	timer := timerAt(b.clock, end.Time)
	return timer.C(), func() { timer.Stop() }
}

// checkWait reports whether the wait is over, and its result.
func (b *Backend) checkWait(joined *waiter) (granted *v1alpha1.Lock, isOver bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, now := joined.entry, b.clock.Now()
	defer b.deleteIfEmpty(e)
	if joined.granted != nil && rules.Expired(joined.granted, now) {
		e.requeue(joined)
		if e.lock == nil && !b.isUnavailable {
			b.grantFirst(e, now, now)
		}
	}
	b.handleExpiry(e, now)
	switch {
	case joined.ctx.Err() != nil:
		var known error
		if joined.granted == nil && (b.isUnavailable || e.lock != nil) {
			known = b.timeout(joined)
		}
		b.leave(joined, now)
		return nil, true, lock.Interrupted(joined.ctx, joined.request.FullKey(), known)
	case joined.granted != nil:
		if e.undelivered == joined {
			e.undelivered = nil
		}
		e.takeOutRepeated(joined.granted)
		return joined.granted.DeepCopy(), true, nil
	case joined.isFound:
		return nil, true, fmt.Errorf("wait for %s: %w", joined.request.FullKey(), lock.ErrFoundElsewhere)
	case !joined.isOverdue(now):
		return nil, false, nil
	case e.lock == nil && !b.isUnavailable: // Its last try.
		e.waiters.Remove(joined.element)
		granted = b.grant(e, joined.request.Acquisition, now).DeepCopy()
		e.takeOutRepeated(granted)
		return granted, true, nil
	}
	b.leave(joined, now)
	return nil, true, b.timeout(joined)
}

// endWait ends a wait with the given error.
func (b *Backend) endWait(joined *waiter, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, now := joined.entry, b.clock.Now()
	defer b.deleteIfEmpty(e)
	b.handleExpiry(e, now)
	b.leave(joined, now)
	if errors.Is(err, lock.ErrTimeout) && e.lock != nil {
		return b.timeout(joined)
	}
	return err
}

// leave takes out a waiter whose caller leaves. A lock that was granted to it meanwhile goes to
// the next waiter.
func (b *Backend) leave(gone *waiter, now time.Time) {
	e := gone.entry
	if e.undelivered == gone {
		e.undelivered = nil
	}
	switch {
	case gone.granted == nil:
		e.waiters.Remove(gone.element)
		e.wakeHead()
	case e.isHeld(now) && e.lock == gone.granted:
		b.release(e, now)
	}
}

func (b *Backend) timeout(overdue *waiter) error {
	if b.isUnavailable {
		return fmt.Errorf("wait for %s: %w", overdue.request.FullKey(), lock.ErrUnavailable)
	}
	return fmt.Errorf("%w: %w", lock.ErrTimeout, rules.HeldBy(overdue.entry.lock))
}
