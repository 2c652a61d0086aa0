package locktest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// Acquire implements [lock.Backend]. An owner that the request does not name is a new
// UUID v4, a holder that it does not name is that of [WithHolder].
func (b *Backend) Acquire(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if request.Owner == "" {
		request.Owner = lock.NewOwner()
	}
	if request.Holder == "" {
		request.Holder = b.holder
	}
	began := b.clock.Now()
	if err := b.validate(namespace, request, began); err != nil {
		return nil, err
	}
	granted, joined, err := b.acquireOrJoin(ctx, namespace, request, began)
	if joined == nil {
		return granted, err
	}
	return b.await(joined)
}

// validate finds what cannot be granted however long it waits.
func (b *Backend) validate(namespace string, request lock.Request, now time.Time) error {
	if request.Wait < 0 {
		return &lock.InvalidError{Problems: field.ErrorList{
			field.Invalid(field.NewPath("wait"), request.Wait.String(), "must not be negative"),
		}}
	}
	_, err := rules.Grant(namespace, request.Acquisition, b.limits, now)
	return err
}

// acquireOrJoin takes the lock, or joins its queue if it is held and the request is to
// wait.
func (b *Backend) acquireOrJoin(ctx context.Context, namespace string, request lock.Request, began time.Time) (*v1alpha1.Lock, *waiter, error) {
	var granted *v1alpha1.Lock
	var joined *waiter
	err := b.on(namespace, request.FullKey(), "acquire", func(e *entry, now time.Time) error {
		next, err := b.next(e, request.Acquisition, false, now)
		switch {
		case err == nil:
			b.store(e, next)
			granted = next.DeepCopy()
		case errors.Is(err, lock.ErrHeld) && request.Wait > 0:
			joined = e.join(ctx, request, began)
			return nil
		}
		return err
	})
	return granted, joined, err
}

// await returns when the lock is acquired or the wait is over.
func (b *Backend) await(joined *waiter) (*v1alpha1.Lock, error) {
	var overdue <-chan time.Time
	if !joined.deadline.IsZero() {
		timer := alarm(b.clock, joined.deadline)
		defer timer.Stop()
		overdue = timer.C()
	}
	for {
		// The alarm is set before the look, so that no step of the clock is missed.
		expiry, stop := b.expiryAlarm(joined)
		if granted, isOver, err := b.look(joined); isOver {
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

// expiryAlarm tells the head of a queue when the lock expires. All others need not
// know.
func (b *Backend) expiryAlarm(joined *waiter) (expiry <-chan time.Time, stop func()) {
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
	timer := alarm(b.clock, end.Time)
	return timer.C(), func() { timer.Stop() }
}

// look reports whether the wait is over, and how it ended.
func (b *Backend) look(joined *waiter) (granted *v1alpha1.Lock, isOver bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, now := joined.entry, b.clock.Now()
	defer b.tidy(e)
	b.settle(e, now)
	switch {
	case joined.ctx.Err() != nil:
		b.leave(joined, now)
		return nil, true, joined.ctx.Err()
	case joined.isServed && joined.err == nil && rules.Expired(joined.granted, now):
		return nil, true, fmt.Errorf("acquire %s in namespace %s: %w", joined.request.FullKey(), e.name.Namespace, lock.ErrExpired)
	case joined.isServed:
		return joined.granted.DeepCopy(), true, joined.err
	case joined.isOverdue(now):
		b.leave(joined, now)
		return nil, true, b.timeout(joined)
	}
	return nil, false, nil
}

// leave takes out a waiter whose caller goes. What was granted to it meanwhile goes to
// the next one.
func (b *Backend) leave(gone *waiter, now time.Time) {
	e := gone.entry
	switch {
	case !gone.isServed:
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
