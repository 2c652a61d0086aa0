package locktest

import (
	"container/list"
	"context"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// waiter is a caller that waits for a lock.
type waiter struct {
	entry   *entry
	element *list.Element
	request lock.Request
	// ctx is the caller's context: after its end the waiter is granted nothing.
	ctx context.Context // the lifetime of the call
	// deadline is when the wait ends; zero means never.
	deadline time.Time
	// woken makes the caller check the wait.
	woken chan struct{}

	// The mutex of the backend guards the fields below.

	// granted is nil until the waiter has been granted the lock.
	granted *v1alpha1.Lock
	// isFound says that its request has been granted the lock by another call, and that it waits no more.
	isFound bool
}

func (w *waiter) signal() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

func (w *waiter) isOverdue(now time.Time) bool {
	return !w.deadline.IsZero() && !now.Before(w.deadline)
}

// join adds a waiter to the queue, before those of lower priorities.
func (e *entry) join(ctx context.Context, request lock.Request, began time.Time) *waiter {
	joined := &waiter{entry: e, request: request, ctx: ctx, woken: make(chan struct{}, 1)}
	if request.Wait < lock.WaitForever {
		joined.deadline = began.Add(request.Wait)
	}
	before := e.waiters.Back()
	for before != nil && waiterOf(before).request.Priority < request.Priority {
		before = before.Prev()
	}
	if before == nil {
		joined.element = e.waiters.PushFront(joined)
	} else {
		joined.element = e.waiters.InsertAfter(joined, before)
	}
	return joined
}

// requeue puts a waiter back to the front whose grant it can no longer take.
func (e *entry) requeue(late *waiter) {
	late.granted, e.undelivered = nil, nil
	late.element = e.waiters.PushFront(late)
}

// first returns the first waiter whose wait had not ended at the given time, or nil. Waiters
// before it notice the end of their waits themselves.
func (e *entry) first(at time.Time) *waiter {
	for element := e.waiters.Front(); element != nil; element = element.Next() {
		waiting := waiterOf(element)
		if waiting.ctx.Err() == nil && (waiting.deadline.IsZero() || !waiting.deadline.Before(at)) {
			return waiting
		}
	}
	return nil
}

// head returns the first waiter, or nil.
func (e *entry) head() *waiter {
	front := e.waiters.Front()
	if front == nil {
		return nil
	}
	return waiterOf(front)
}

// takeOutRepeated ends the waits of the request that has just got the lock by another call: it was sent several times.
func (e *entry) takeOutRepeated(granted *v1alpha1.Lock) {
	if !rules.IsDerivedOwner(granted.Spec.Owner) {
		return
	}
	var next *list.Element
	for element := e.waiters.Front(); element != nil; element = next {
		next = element.Next()
		waiting := waiterOf(element)
		if waiting.request.Owner != granted.Spec.Owner || waiting.request.Holder != granted.Spec.Holder {
			continue
		}
		e.waiters.Remove(element)
		waiting.isFound = true
		waiting.signal()
	}
}

func (e *entry) wakeHead() {
	if head := e.head(); head != nil {
		head.signal()
	}
}

func waiterOf(element *list.Element) *waiter {
	return element.Value.(*waiter)
}
