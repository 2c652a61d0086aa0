package forward

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/servertime"
)

// lookAgainAfter is how long the run sleeps at most: a timer stands still while the machine is
// suspended.
const lookAgainAfter = time.Second

// cleanupTimeout is how long the last renewal may take when the server stops.
const cleanupTimeout = 5 * time.Second

// lockedRun is a function that runs in another service inside a lock that ends with it. It
// may go on when its call is over. One goroutine at a time uses it: that of the call, and
// then one of the background.
type lockedRun struct {
	*Forwarder
	*Lock

	logger logr.Logger
	timers clock.WithTicker
	// deadline is when the function is over whatever happens.
	deadline time.Time
	// renewal is when to renew the lock next, after so many failures.
	renewal  time.Time
	failures int
	// expiry is when the lock ends unless it is renewed.
	expiry time.Time
	// lost says what became of the lock if it is known not to be held.
	lost error

	// exchange ends when the service is not listened to any more. Then response and err say
	// what came of it.
	exchange context.Context // It belongs to the function, not to the call.
	response *envelope.Response
	err      error
}

// doLocked calls the service and renews the lock until it answers or ctx ends.
func (f *Forwarder) doLocked(ctx context.Context, call *Call, request *request) (*envelope.Response, error) {
	timers := servertime.Timers(f.Clock)
	now := timers.Now()
	spec := &call.Lock.Granted.Spec
	// Acquiring the lock may have taken a part of its ttl already.
	left := min(spec.ExpireTime.Sub(f.Clock.Now()), call.Lock.TTL)
	run := &lockedRun{
		Forwarder: f, Lock: call.Lock, timers: timers,
		logger:   f.Logger.WithValues("namespace", call.Lock.Granted.Namespace, "lock", string(spec.FullKey()), "function", call.Request.Call.Function),
		deadline: now.Add(call.Route.Timeout),
		renewal:  now.Add(f.renewalPause(call.Lock.TTL, 0) - call.Lock.TTL + left),
		expiry:   now.Add(left),
	}
	var end context.CancelFunc
	run.exchange, end = context.WithCancel(context.WithoutCancel(ctx))
	call.Lock.run = run
	route, id, body, header, room := call.Route, request.ID, request.encode(), request.header, call.Answer
	f.Background.Run(func(background context.Context) {
		defer end()
		run.err = run.recovered(func() (err error) {
			run.response, err = f.Client.do(background, route, id, body, header, room)
			return err
		})
	})
	run.renewDuringExchange(ctx)
	select {
	case <-run.exchange.Done():
		return run.response, run.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// mayRun reports whether the function may still be running when the exchange has ended.
func (r *lockedRun) mayRun() bool {
	failure, ok := errors.AsType[*CallError](r.err)
	return r.err != nil && (!ok || failure.MayRun)
}

// finish renews the lock until the function is over, and then releases it. If ctx ends
// before, so does the exchange, and the lock is left for the rest of the timeout.
func (r *lockedRun) finish(ctx context.Context, exchanged func()) {
	exchanged = sync.OnceFunc(exchanged)
	defer exchanged() // Also after a panic.
	r.renewDuringExchange(ctx)
	<-r.exchange.Done()
	r.response = nil // Its room is given back, and the lock may last for long.
	exchanged()
	if r.mayRun() {
		untilDeadline, cancel := context.WithTimeout(ctx, r.left())
		defer cancel()
		r.renewUntil(untilDeadline)
	}
	switch {
	case r.lost != nil:
	case r.mayRun() && r.left() > 0:
		r.leave(ctx)
	default:
		_ = r.Release(context.WithoutCancel(ctx)) // Why it failed is in the log.
	}
}

// left is for how much longer the function may run. It is not less than zero.
func (r *lockedRun) left() time.Duration { return max(0, r.deadline.Sub(r.timers.Now())) }

func (r *lockedRun) renewDuringExchange(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(r.exchange, cancel) // The exchange has an end of its own.
	defer stop()
	r.renewUntil(ctx)
}

// renewUntil renews the lock until ctx ends or the lock is lost. After a suspend it renews at once.
func (r *lockedRun) renewUntil(ctx context.Context) {
	if r.lost != nil {
		return
	}
	timer := r.timers.NewTimer(r.untilRenewal())
	defer timer.Stop()
	for r.lost == nil {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
		}
		if r.untilRenewal() <= 0 {
			r.renew(ctx)
		}
		timer.Reset(r.untilRenewal())
	}
}

// untilRenewal returns how long to sleep; zero or less if a renewal is due.
func (r *lockedRun) untilRenewal() time.Duration {
	now := r.timers.Now()
	if servertime.Jump(r.renewal, now) > 0 {
		return 0
	}
	return min(r.renewal.Sub(now), lookAgainAfter)
}

// renew makes one attempt.
func (r *lockedRun) renew(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.renewalPause(r.TTL, 0))
	defer cancel()
	sent := r.timers.Now()
	err := r.recovered(func() error {
		renewed, err := r.Renew(ctx, 0)
		if err == nil && (renewed.UID != r.Granted.UID || !renewed.Spec.AcquireTime.Equal(r.Granted.Spec.AcquireTime)) {
			// A later grant under the same owner token, which was not this one's to renew.
			return lock.ErrOwnerMismatch
		}
		return err
	})
	switch {
	case err == nil:
		r.failures, r.expiry = 0, sent.Add(r.TTL)
	case errors.Is(err, lock.ErrNotHeld), errors.Is(err, lock.ErrOwnerMismatch):
		r.lost = err
		r.logger.Info("Lock was lost while its function is running in another service", "reason", err.Error())
	default:
		r.failures++
		r.logger.V(1).Info("Lock could not be renewed", "reason", err.Error())
	}
	r.renewal = r.timers.Now().Add(r.renewalPause(r.TTL, r.failures))
}

// leave makes the lock last for as long as the function may run: nothing will renew or
// release it.
func (r *lockedRun) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	ttl := min(r.left().Truncate(time.Millisecond)+time.Millisecond, r.MaxTTL)
	if _, err := r.Renew(ctx, ttl); err != nil {
		r.logger.Error(err, "Failed to keep a lock for the rest of its function")
	}
}

// renewalPause bounds what a lock costs whose ttl is hardly longer than it takes to renew
// it.
func (f *Forwarder) renewalPause(ttl time.Duration, failures int) time.Duration {
	const shortest = 20 * time.Millisecond
	return max(f.Pause(ttl, failures), shortest)
}

// recovered calls function, whose panics would end the process or the call.
func (f *Forwarder) recovered(function func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
			f.Logger.Error(err, "Recovered from a panic", "stack", string(debug.Stack()))
		}
	}()
	return function()
}
