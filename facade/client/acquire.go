package client

import (
	"context"
	"errors"
	"math"
	"net/http/httptrace"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// Acquire implements [lock.Backend]. A wait that is longer than the façade permits in
// one call is made of several, and keeps its place in line between them. So does one that the façade ends
// because it stops, or because its connection breaks, unless the home of the line has died or changed: another replica is asked
// for the rest of it.
//
// If the answer of the façade is lost, Acquire looks whether the lock is held under the
// owner token since it was asked for. If so, it renews the lock, and returns it once that
// has succeeded. A wait goes on meanwhile, and Acquire looks beside it as long as the call without an answer may
// be granted the lock. If ctx ends, or nothing can
// be learnt, it releases what it may have got, for at most half the timeout of the client, and returns an error. After the end
// of ctx the release goes on behind the caller, unless the caller has chosen the owner token: its next acquisition may
// have that, too, so Acquire returns when the release is over. Should the façade not be reached
// meanwhile, a lock that was granted all the same ends with its ttl. For this to be
// exact, an owner token that the caller chooses must not be in use by another
// acquisition at the same time.
func (c *Client) Acquire(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error) {
	return c.acquire(ctx, namespace, request, nil)
}

// acquire is Acquire. Trace, unless it is nil, is told of the connections of the calls that wait, and of no others.
func (c *Client) acquire(ctx context.Context, namespace string, request lock.Request, trace *httptrace.ClientTrace) (*v1alpha1.Lock, error) {
	if ctx.Err() != nil {
		return nil, lock.Interrupted(ctx, request.FullKey(), nil)
	}
	attempt := acquisition{client: c, namespace: namespace, request: request, isTokenNew: request.Owner == "", trace: trace}
	if attempt.isTokenNew {
		attempt.request.Owner = lock.NewOwner()
	}
	if err := validate(attempt.request); err != nil {
		return nil, err
	}
	return attempt.run(ctx)
}

// validate refuses what no façade grants. Text that is not UTF-8, for one, would change
// its meaning on the way.
func validate(request lock.Request) error {
	request.Holder = "stamped by the façade"
	_, err := request.Validate(rules.Limits{DefaultTTL: v1alpha1.MaxTTL, MaxTTL: v1alpha1.MaxTTL})
	return err
}

// acquisition is one call of [Client.Acquire].
type acquisition struct {
	client    *Client
	namespace string
	request   lock.Request
	// isTokenNew says that no other client can have the owner token.
	isTokenNew bool
	trace      *httptrace.ClientTrace
	// sent is when the façade was asked last.
	sent time.Time
	// doubt is about former calls that were not answered.
	doubt doubt
	// last is how the last call for the lock ended that was answered, and lost how one ended since whose connection broke.
	last, lost error
	// isNearEnd says that a call has told the holder just before the end of the caller's context.
	isNearEnd bool
	// moved is when the façade last ended a wait because it stops, or its connection broke; zero if that has not
	// happened. Moves counts how often it has since the façade has answered otherwise.
	moved time.Time
	moves int
}

// run asks the façade until the wait is over.
func (a *acquisition) run(ctx context.Context) (*v1alpha1.Lock, error) {
	start := a.client.options.clock.Now()
	for {
		remaining := a.remaining(start)
		longest := time.Duration(a.client.maxBlock.Load())
		block := min(remaining, longest)
		if left := a.untilNearEnd(ctx); left > 0 && left < block {
			block, a.isNearEnd = left, true
		}
		granted, err := a.askAndLook(ctx, block)
		permitted, isTooLong := longestBlock(err)
		switch {
		case err == nil:
			return granted, nil
		case isTooLong && permitted < block:
			a.client.maxBlock.CompareAndSwap(int64(longest), int64(permitted))
			continue
		case ctx.Err() != nil:
			told := a.interrupted(ctx, err)
			a.giveUp(ctx, err)
			return nil, told
		}
		if _, ok := errors.AsType[*unansweredError](err); ok {
			if !a.goesOn(start, block) {
				return a.settle(ctx, err)
			}
			a.lost = err
			a.goOn(ctx, block)
			continue
		}
		if a.isMoving(err, start) {
			a.isNearEnd = false
			a.pause(ctx) // If ctx ends meanwhile, the next call tells.
			continue
		}
		a.moved, a.moves = time.Time{}, 0
		told := outcome(a.operation(), a.request.FullKey(), err)
		if block == remaining || !errors.Is(told, lock.ErrTimeout) {
			a.giveUp(ctx, err)
			return nil, a.doubted(told)
		}
		// The next call may be for a replica that has just gone.
		a.last, a.lost, a.moved = told, nil, a.client.options.clock.Now()
	}
}

// interrupted is the error of a wait that its context has ended, in a call that failed with err.
func (a *acquisition) interrupted(ctx context.Context, err error) error {
	last := a.last
	switch {
	case !isUnanswered(err):
		last = outcome(a.operation(), a.request.FullKey(), err)
	case a.lost != nil && a.client.options.clock.Since(a.sent) < waitedFor:
		last = outcome(a.operation(), a.request.FullKey(), a.lost) // No other replica had let it wait.
	}
	return lock.Interrupted(ctx, a.request.FullKey(), last)
}

// remaining returns how long the wait that began at start goes on. The first call is always made, and asks for some
// time.
func (a *acquisition) remaining(start time.Time) time.Duration {
	if a.request.Wait <= 0 || a.request.Wait == lock.WaitForever {
		return a.request.Wait
	}
	return max(a.request.Wait-a.client.options.clock.Since(start), time.Millisecond)
}

const (
	// waitedFor is how long a call has taken at least that the façade has let wait.
	waitedFor = 50 * time.Millisecond
	// moveFor is how long another replica is looked for: for less than the façade keeps the place.
	moveFor = 4 * time.Second
	// movePause is the pause between two looks.
	movePause = 100 * time.Millisecond
	// maxMoves bounds how often a wait is ended so: an API server that does not answer looks alike.
	maxMoves = 10
)

// isMoving reports whether the façade has ended a wait that began at start because it stops, and the place in line
// is kept still. While another replica is looked for, one that cannot be reached is passed over.
func (a *acquisition) isMoving(err error, start time.Time) bool {
	now := a.client.options.clock.Now()
	isUnreached := !a.moved.IsZero() && isUnsent(err)
	if !isUnreached && !isUnavailable(err) || now.Sub(start) >= a.request.Wait {
		return false
	}
	if !isUnreached && now.Sub(a.sent) >= waitedFor {
		a.moved = now
		a.moves++
	}
	return !a.moved.IsZero() && now.Sub(a.moved) < moveFor && a.moves <= maxMoves
}

// pause waits before another replica is asked, or until ctx ends.
func (a *acquisition) pause(ctx context.Context) {
	timer := a.client.options.clock.NewTimer(movePause)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	}
}

// maxNearEnd is how long before the end of the caller's context the façade is to have told the holder.
const maxNearEnd = 100 * time.Millisecond

// untilNearEnd returns how long the façade may wait to tell the holder in time; zero if it has told
// already, or the context has no deadline.
func (a *acquisition) untilNearEnd(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok || a.isNearEnd {
		return 0
	}
	left := deadline.Sub(a.client.options.clock.Now())
	return (left - min(maxNearEnd, left/4)).Truncate(time.Millisecond)
}

func (a *acquisition) operation() string {
	return a.client.operation("acquire", a.namespace, a.request.FullKey())
}

func (a *acquisition) ask(ctx context.Context, block time.Duration) (*v1alpha1.Lock, error) {
	arguments := wire.AcquireArguments{
		Key:      a.request.Key,
		Scope:    wire.ScopeOf(a.request.Scope),
		Function: a.request.Function,
		TTL:      durationOf(a.request.TTL),
		Block:    durationOf(block),
		Owner:    a.request.Owner,
		Reason:   a.request.Reason,
		Priority: a.request.Priority,

		HolderRef:    wire.NewHolderRef(a.request.HolderRef),
		ReleaseDelay: durationOf(a.request.ReleaseDelay),
	}
	a.sent = a.client.options.clock.Now()
	// The sum must not overflow: a client can be told to ask for the longest wait there is.
	timeout := min(block, math.MaxInt64-a.client.options.timeout) + a.client.options.timeout
	if a.trace != nil {
		ctx = httptrace.WithClientTrace(ctx, a.trace)
	}
	answer, err := a.client.exchange(ctx, a.namespace, wire.Acquire, arguments, timeout)
	if err != nil {
		return nil, err
	}
	var result wire.Acquired
	if err := decode(answer, &result); err != nil {
		return nil, err
	}
	if !result.Acquired || !a.isOurs(&result.Lock) {
		return nil, errAnotherLock
	}
	return lockOf(a.namespace, &result.Lock)
}

// isOurs reports whether a lock is the one that was asked for.
func (a *acquisition) isOurs(described *wire.Lock) bool {
	return isOf(described, a.request.FullKey(), a.request.Owner)
}
