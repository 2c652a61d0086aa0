package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// doubt is about calls that were not answered, while their wait goes on by other calls under the same owner token. A
// replica that lives may grant the lock to such a call until its time to wait is over, and a write of one that has died
// may come late. The wait would then be for its own lock.
type doubt struct {
	// since is when the first of them was sent.
	since time.Time
	// until is when none of them can be granted the lock any more.
	until time.Time
	// next is when the caller looks for such a grant; zero if there is no doubt. After that it looks after about twice the
	// pause each time, and at last when until is over.
	next  time.Time
	pause time.Duration
}

const (
	// lookWithin is how soon a caller first looks for a grant. Many callers may lose their connections at once.
	lookWithin = 500 * time.Millisecond
	// lookAfter is the pause after that, more or less, and maxLookAfter the longest.
	lookAfter    = 3 * time.Second
	maxLookAfter = time.Minute
)

// random returns a number in [0, 1), which spreads requests and is no secret. Tests draw from a source of their own.
var random = rand.Float64

// goesOn reports whether a wait that began at start outlasts a call that was to wait for block, and whose connection has
// just broken: the façade had let it wait, or another replica is being looked for. A façade that is silent for longer than
// that is not asked again.
func (a *acquisition) goesOn(start time.Time, block time.Duration) bool {
	now := a.client.options.clock.Now()
	took := now.Sub(a.sent)
	isSilent := took-a.client.options.timeout >= block
	isLooking := !a.moved.IsZero() && now.Sub(a.moved) < moveFor
	return !isSilent && now.Sub(start) < a.request.Wait && (isLooking && a.moves <= maxMoves || took >= waitedFor && a.moves < maxMoves)
}

// goOn notes that the connection of the last call has broken, which was to wait for block, and that the wait goes on.
func (a *acquisition) goOn(ctx context.Context, block time.Duration) {
	now := a.client.options.clock.Now()
	soon := now.Add(time.Duration(random() * float64(lookWithin)))
	if !a.isDoubtful() {
		a.doubt = doubt{since: a.sent, next: soon, pause: lookAfter}
	}
	until := a.sent.Add(min(block, lock.WaitForever-2*lock.OperationTimeout) + 2*lock.OperationTimeout)
	if until.After(a.doubt.until) {
		a.doubt.until = until
	}
	a.isNearEnd = false
	if now.Sub(a.sent) < waitedFor {
		a.pause(ctx)
		return
	}
	if soon.Before(a.doubt.next) {
		a.doubt.next = soon
	}
	a.doubt.pause = lookAfter
	a.moved = now
	a.moves++
}

// isDoubtful reports whether a call that was not answered may be granted the lock.
func (a *acquisition) isDoubtful() bool { return !a.doubt.next.IsZero() }

// doubted is the error of a wait that has ended.
func (a *acquisition) doubted(told error) error {
	if !a.isDoubtful() || !errors.Is(told, lock.ErrTimeout) {
		return told
	}
	return fmt.Errorf("%w; a call whose connection has broken may be granted it yet", told)
}

// askedSince is since when a grant to this acquisition may have been made.
func (a *acquisition) askedSince() time.Time {
	if a.isDoubtful() {
		return a.doubt.since
	}
	return a.sent
}

// askAndLook is ask. Beside it, it looks for a grant to a call that was not answered, as long as there may be one.
func (a *acquisition) askAndLook(ctx context.Context, block time.Duration) (*v1alpha1.Lock, error) {
	if !a.isDoubtful() {
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
	for a.isDoubtful() {
		timer := a.client.options.clock.NewTimer(a.doubt.next.Sub(a.client.options.clock.Now()))
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		isLast := !a.client.options.clock.Now().Before(a.doubt.until)
		granted, err := a.lookOnce(ctx)
		switch {
		case granted != nil:
			return granted
		case ctx.Err() != nil:
			return nil // It looks again beside the next call.
		case err == nil && isLast:
			a.doubt = doubt{}
		default:
			a.doubt.next = a.client.options.clock.Now().Add(a.doubt.pause/2 + time.Duration(random()*float64(a.doubt.pause)))
			a.doubt.pause = min(2*a.doubt.pause, maxLookAfter)
			if !isLast && a.doubt.next.After(a.doubt.until) {
				a.doubt.next = a.doubt.until
			}
		}
	}
	return nil
}
