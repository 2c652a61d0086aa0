package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// doubt is about calls that were not answered, while their wait goes on by other calls under the same owner token. A
// replica that lives may grant the lock to such a call until its time to wait is over, and a write of one that has died
// may come late. The wait would then be for its own lock.
type doubt struct {
	// since is when the first of them was sent; zero if there is none.
	since time.Time
	// until is when none of them can be granted the lock any more.
	until time.Time
	// next is when the caller looks for such a grant, and then after twice the pause.
	next  time.Time
	pause time.Duration
}

// lookAfter is the first pause until a caller looks for a grant that comes late.
const lookAfter = 3 * time.Second

// goesOn reports whether a wait that began at start outlasts a call that has just ended without an answer: the façade had
// let it wait, and does not end each call so.
func (a *acquisition) goesOn(start time.Time) bool {
	now := a.client.options.clock.Now()
	return now.Sub(start) < a.request.Wait && now.Sub(a.sent) >= waitedFor && a.moves < maxMoves
}

// doubtCall notes that the last call, which was to wait for block, was not answered, and that the wait goes on.
func (a *acquisition) doubtCall(block time.Duration) {
	now := a.client.options.clock.Now()
	a.moved, a.isNearEnd = now, false
	a.moves++
	until := a.sent.Add(min(block, lock.WaitForever-2*lock.OperationTimeout) + 2*lock.OperationTimeout)
	if !a.isDoubtful() {
		a.doubt = doubt{since: a.sent}
	}
	if until.After(a.doubt.until) {
		a.doubt.until = until
	}
	a.doubt.next, a.doubt.pause = now.Add(lookAfter), lookAfter
}

// isDoubtful reports whether a call that was not answered may yet be granted the lock.
func (a *acquisition) isDoubtful() bool { return a.client.options.clock.Now().Before(a.doubt.until) }

// doubted is the error of a wait that has ended. A caller of a wait that has timed out may hold the lock all the same.
func (a *acquisition) doubted(told error) error {
	if !a.isDoubtful() || !errors.Is(told, lock.ErrTimeout) {
		return told
	}
	return fmt.Errorf("%w: %w: a call that was not answered may yet be granted the lock", told, lock.ErrUnavailable)
}

// askedSince is since when a grant to this acquisition may have been made.
func (a *acquisition) askedSince() time.Time {
	if a.doubt.since.IsZero() {
		return a.sent
	}
	return a.doubt.since
}

// askAndLook is ask. Beside it, it looks for a grant to a call that was not answered, as long as there may be one.
func (a *acquisition) askAndLook(ctx context.Context, block time.Duration) (*v1alpha1.Lock, error) {
	if a.doubt.next.IsZero() {
		return a.ask(ctx, block)
	}
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	found := make(chan *v1alpha1.Lock, 1)
	go func() {
		late := a.lookLater(asking)
		if late != nil {
			cancel()
		}
		found <- late
	}()
	granted, err := a.ask(asking, block)
	cancel()
	if late := <-found; err != nil && late != nil {
		return late, nil
	}
	return granted, err
}

// lookLater looks for a grant until it finds one, there cannot be one any more, or ctx ends.
func (a *acquisition) lookLater(ctx context.Context) *v1alpha1.Lock {
	for !a.doubt.next.IsZero() {
		timer := a.client.options.clock.NewTimer(a.doubt.next.Sub(a.client.options.clock.Now()))
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		isLast := !a.isDoubtful()
		granted, err := a.look(ctx)
		switch {
		case granted != nil:
			return granted
		case err == nil && isLast:
			a.doubt = doubt{}
		case ctx.Err() == nil:
			a.doubt.pause *= 2
			a.doubt.next = a.client.options.clock.Now().Add(a.doubt.pause)
			if !isLast && a.doubt.next.After(a.doubt.until) {
				a.doubt.next = a.doubt.until
			}
		}
	}
	return nil
}
