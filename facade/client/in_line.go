package client

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/lock"
)

const (
	// reachFor is for how long a connection to the façade is tried before a wait goes on at the direct backend.
	reachFor = 3 * time.Second
	// releaseFor is how long the façade may take to release a lock before the direct backend is asked.
	releaseFor = 2 * time.Second
)

// InLine returns a backend for a program that asks the API server itself, and waits in the line of a façade. Direct is
// such as an engine of package lock/engine.
//
// An acquire that waits asks the façade, and so stands in one line with all its callers. The release of a lock that was
// acquired so asks the façade, too, which hands the lock on in the same write. Everything else is up to direct: an
// acquire that does not wait, each renewal, forced releases, reads and watches. Only [lock.LineReader] asks the façade.
//
// The façade must take the caller for the identity that direct has, and direct must serve the namespace of each call:
// otherwise direct cannot renew what the façade has granted.
//
// If a wait fails since the façade cannot be reached, does not answer, or answers that it cannot do it for the moment,
// the wait goes on at direct for what is left of it, and to its end. Order is then kept among the waiters of direct
// alone. The next acquire that waits asks the façade first again. What the façade refuses is not tried again: a lock that
// is held, a right that the caller lacks, or a limit such as that of the line. A release that the façade has not done is
// left to direct.
//
// An owner token that the caller chooses is that of the wait at direct as well. Otherwise that has a new one, so that
// nothing which is still under way at the façade is about it. If the façade has granted the lock and could not tell, the
// wait at direct is for the end of that grant: the façade ends it when it learns that its caller has gone, or else it
// ends with its ttl.
func InLine(direct lock.Backend, facade *Client) lock.Backend {
	return &inLine{Backend: direct, facade: facade, granted: newLineGrants(facade.options.clock)}
}

type inLine struct {
	// Backend is the direct one.
	lock.Backend

	facade *Client
	// granted are the locks that the façade has granted.
	granted *lineGrants
}

var _ lock.LineReader = (*inLine)(nil)

// Acquire implements [lock.Backend].
func (l *inLine) Acquire(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error) {
	// Direct refuses a wait that is negative, and tells what it makes of a namespace without a name.
	if request.Wait <= 0 || namespace == "" {
		return l.acquireDirectly(ctx, namespace, request)
	}
	began := l.facade.options.clock.Now()
	granted, err := l.ask(ctx, namespace, request)
	switch {
	case err == nil:
		l.granted.put(lineGrantOf(namespace, request.FullKey(), granted.Spec.Owner), granted)
		return granted, nil
	case ctx.Err() != nil || !isOutage(err):
		return nil, err
	}
	if request.Wait != lock.WaitForever {
		// The wait is not over before direct was asked.
		request.Wait = max(request.Wait-l.facade.options.clock.Since(began), time.Millisecond)
	}
	if request.Since.IsZero() {
		request.Since = began
	}
	return l.acquireDirectly(ctx, namespace, request)
}

func (l *inLine) acquireDirectly(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error) {
	granted, err := l.Backend.Acquire(ctx, namespace, request)
	if err == nil {
		name := lineGrantOf(namespace, request.FullKey(), granted.Spec.Owner)
		l.granted.forget(name, l.granted.find(name))
	}
	return granted, err
}

// errOutOfReach means that there is no connection to the façade.
var errOutOfReach = fmt.Errorf("%w: no connection to the façade within %s", lock.ErrUnavailable, reachFor)

// ask lets the façade acquire the lock. It gives up when a connection is not there in time: the dialler of the client may
// take far longer.
func (l *inLine) ask(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error) {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	overdue := time.AfterFunc(reachFor, cancel) //nolint:forbidigo // A connection is no matter of the clock that measures locks.
	overdue.Stop()                              // It runs while a connection is looked for. A transport that is not of net/http does not say when.
	defer overdue.Stop()
	granted, err := l.facade.acquire(asking, namespace, request, &httptrace.ClientTrace{
		GetConn: func(string) { overdue.Reset(reachFor) },
		GotConn: func(httptrace.GotConnInfo) { overdue.Stop() },
	})
	if err != nil && asking.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("acquire %s: %w", request.FullKey(), errOutOfReach)
	}
	return granted, err
}

// isOutage reports whether a wait failed since the façade cannot be asked, and not since it refuses the caller.
func isOutage(err error) bool {
	if !errors.Is(err, lock.ErrUnavailable) {
		return false
	}
	problems, ok := errors.AsType[envelope.Errors](err)
	return !ok || problems[0].Code != envelope.RateLimited && problems[0].Code != envelope.FunctionDisabled
}

// Renew implements [lock.Backend].
func (l *inLine) Renew(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof, ttl time.Duration) (*v1alpha1.Lock, error) {
	renewed, err := l.Backend.Renew(ctx, namespace, key, proof, ttl)
	if err == nil {
		l.granted.prolong(lineGrantOf(namespace, key, proof.Owner), renewed)
	}
	return renewed, err
}

// Release implements [lock.Backend].
func (l *inLine) Release(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof) error {
	name := lineGrantOf(namespace, key, proof.Owner)
	token := l.granted.find(name)
	err := l.release(ctx, namespace, key, proof, token)
	if !errors.Is(err, lock.ErrUnavailable) {
		l.granted.forget(name, token) // Before, another release is for the same grant.
	}
	return err
}

// release is Release of the grant with the fencing token, which the façade has made; zero if it has made none.
func (l *inLine) release(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof, token int64) error {
	// Each of the two is to end this grant alone, whenever it happens.
	ofGrant := lock.Proof{Owner: proof.Owner, FencingToken: token}
	if token == 0 || proof != ofGrant && proof != (lock.Proof{Owner: proof.Owner}) {
		return l.Backend.Release(ctx, namespace, key, proof)
	}
	asking, cancel := bounded(ctx, l.releaseTime(ctx))
	err := l.facade.releaseOnce(asking, namespace, key, ofGrant)
	cancel()
	switch {
	case err == nil:
		return nil
	case !isUnanswered(err) && !isUnavailable(err), errors.Is(err, lock.ErrNothingDone):
		return l.Backend.Release(ctx, namespace, key, ofGrant)
	}
	unanswered := err
	err = l.Backend.Release(ctx, namespace, key, ofGrant)
	switch isOver := errors.Is(err, lock.ErrNotHeld) || errors.Is(err, lock.ErrOwnerMismatch); {
	case isOver && !errors.Is(err, lock.ErrExpired):
		return nil // By what the façade did not answer.
	case errors.Is(err, lock.ErrNothingDone):
		return unanswered
	}
	return err
}

// releaseTime is how long the façade may take to release a lock, so that time is left for direct.
func (l *inLine) releaseTime(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok || ctx.Err() != nil {
		return releaseFor
	}
	return min(releaseFor, time.Until(deadline)/2) //nolint:forbidigo // The deadline of a context is by this clock.
}

// Waiters implements [lock.LineReader]: they are those of the façade.
func (l *inLine) Waiters(ctx context.Context, namespace string, key v1alpha1.FullKey, limit int) (waiters []lock.Waiter, isComplete bool, err error) {
	return l.facade.Waiters(ctx, namespace, key, limit)
}
