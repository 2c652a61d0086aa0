package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
)

// stampTolerance is how far the time of a grant may be off within one façade: its
// stamps may run ahead of its clock by that much.
const stampTolerance = time.Millisecond

// newBackoff spaces requests to a façade that did not answer.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: 20 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 6, Cap: time.Second}
}

// pause waits for the next step and reports false if ctx ended first.
func (c *Client) pause(ctx context.Context, backoff *wait.Backoff) bool {
	select {
	case <-ctx.Done():
		return false
	case <-c.options.clock.After(backoff.Step()):
		return true
	}
}

// detached returns a context that outlives the caller's, for at most timeout.
func detached(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}

// bounded is detached for what the caller waits for: it also ends at the deadline of ctx, if that is still
// ahead.
func bounded(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	outlasting, cancel := detached(ctx, timeout)
	deadline, ok := ctx.Deadline()
	if !ok || ctx.Err() != nil {
		return outlasting, cancel
	}
	bounded, cancelBounded := context.WithDeadline(outlasting, deadline)
	return bounded, func() {
		cancelBounded()
		cancel()
	}
}

// settle finds out what became of an acquire whose answer was lost, and which does not go on.
func (a *acquisition) settle(ctx context.Context, unanswered error) (*v1alpha1.Lock, error) {
	if granted := a.look(ctx); granted != nil {
		return granted, nil
	}
	a.giveUp(ctx, unanswered)
	if ctx.Err() != nil {
		return nil, lock.Interrupted(ctx, a.request.FullKey(), fmt.Errorf("%s: %w", a.operation(), unanswered))
	}
	return nil, fmt.Errorf("%s: %w", a.operation(), unanswered)
}

// look is lookOnce, until that tells something.
func (a *acquisition) look(ctx context.Context) *v1alpha1.Lock {
	// The other half is for giving up.
	looking, cancel := context.WithTimeout(ctx, a.client.options.timeout/2)
	defer cancel()
	backoff := newBackoff()
	for {
		granted, err := a.lookOnce(looking)
		if err == nil || !mayRecover(err) || !a.client.pause(looking, &backoff) {
			return granted
		}
	}
}

// lookOnce returns the lock if it is held since it was asked for, and nil if it is not. A lock that it finds counts once
// a renewal has succeeded: the façade may be about to end a grant whose answer did not arrive, and
// ends none that was renewed.
func (a *acquisition) lookOnce(ctx context.Context) (*v1alpha1.Lock, error) {
	current, err := a.ours(ctx)
	if err != nil || current == nil {
		return nil, err
	}
	return a.client.Renew(ctx, a.namespace, a.request.FullKey(), proofOf(current), 0)
}

// ours returns the lock if it is held since it was asked for, and nil if it is not. A
// token that the caller chose may have been used before, so the lock may be held by an
// earlier acquisition. The clock of the façade tells how long it has been held.
func (a *acquisition) ours(ctx context.Context) (*wire.Lock, error) {
	state, err := a.client.status(ctx, a.namespace, a.request.FullKey())
	if err != nil || !state.Locked || state.Lock == nil || !a.isOurs(state.Lock) {
		return nil, err
	}
	if a.isTokenNew {
		return state.Lock, nil
	}
	checked, err := time.Parse(time.RFC3339, state.CheckedAt)
	if err != nil {
		return nil, &unansweredError{err}
	}
	acquired, err := time.Parse(time.RFC3339, state.AcquiredAt)
	if err != nil {
		return nil, &unansweredError{err}
	}
	if checked.Sub(acquired) > a.client.options.clock.Since(a.askedSince())+stampTolerance {
		return nil, nil
	}
	return state.Lock, nil
}

// maxLate is for how long a caller whose context has ended is kept for the release of what it may have got.
const maxLate = 50 * time.Millisecond

// giveUp releases what an acquire that failed with cause may have got. It looks twice:
// the façade may learn that a connection is closed a moment after the next
// request has arrived on another one. If that takes longer than the caller has time for, it goes on in
// the background, unless the caller has chosen the owner token: its next acquisition may have it, too.
func (a *acquisition) giveUp(ctx context.Context, cause error) {
	if !isUnanswered(cause) && !a.isDoubtful() {
		return
	}
	if !a.isTokenNew {
		a.end(ctx)
		return
	}
	done := make(chan struct{})
	a.client.leaving.Go(func() {
		defer close(done)
		a.end(ctx)
	})
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	late, cancel := detached(ctx, maxLate)
	defer cancel()
	select {
	case <-done:
	case <-late.Done():
	}
}

// end releases what the acquire may have got.
func (a *acquisition) end(ctx context.Context) {
	ctx, cancel := detached(ctx, a.client.options.timeout/2)
	defer cancel()
	backoff := newBackoff()
	for absent := 0; absent < 2; {
		err := a.releaseOurs(ctx)
		switch {
		case err == nil:
			return
		case errors.Is(err, lock.ErrNotHeld), errors.Is(err, lock.ErrOwnerMismatch):
			absent++
		case !mayRecover(err):
			return
		}
		if absent < 2 && !a.client.pause(ctx, &backoff) {
			return
		}
	}
}

// proofOf is for this grant alone: a request may arrive late, when the owner token has the lock again.
func proofOf(found *wire.Lock) lock.Proof {
	proof := lock.Proof{Owner: found.Owner}
	if found.FencingToken != nil {
		proof.FencingToken = *found.FencingToken
	}
	return proof
}

func (a *acquisition) releaseOurs(ctx context.Context) error {
	proof := lock.Proof{Owner: a.request.Owner}
	if !a.isTokenNew {
		current, err := a.ours(ctx)
		if err != nil {
			return err
		}
		if current == nil {
			return lock.ErrNotHeld
		}
		proof = proofOf(current)
	}
	return a.client.releaseOnce(ctx, a.namespace, a.request.FullKey(), proof)
}

// mayRecover reports whether trying again may help.
func mayRecover(err error) bool { return errors.Is(err, lock.ErrUnavailable) }
