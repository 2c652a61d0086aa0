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

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/servertime"
)

const (
	// lookAgainAfter is how long a renewal sleeps at most: a timer stands still while the machine is suspended.
	lookAgainAfter = time.Second
	// cleanupTimeout is how long the last renewal may take when the server stops.
	cleanupTimeout = 5 * time.Second
	// shortestPause bounds what a lock costs whose ttl is hardly longer than it takes to renew it.
	shortestPause = 20 * time.Millisecond
)

// Lock is a lock that ends with the function inside it, which may go on when its call is over. One goroutine at a time uses
// it: that of the call, and then one of the background.
type Lock struct {
	// Granted is the lock as it was granted. Required.
	Granted *v1alpha1.Lock
	// TTL is how long the lock lives unless it is renewed. Required.
	TTL time.Duration
	// Renew replaces the remaining time of the lock by a whole ttl, of which zero means the one that the lock has. Errors are
	// those of [lock.Backend]. Required.
	Renew func(ctx context.Context, ttl time.Duration) (*v1alpha1.Lock, error)
	// Release ends the lock, even if ctx ends, and logs why it could not. Errors are those of [lock.Backend]. Required.
	Release func(ctx context.Context) error

	forwarder *Forwarder
	logger    logr.Logger
	timers    clock.WithTicker
	// deadline is when the function is over whatever happens.
	deadline time.Time
	// renewal is when to renew the lock next, after so many failures.
	renewal  time.Time
	failures int
	// expiry is when the lock ends unless it is renewed.
	expiry time.Time
	// lost says what became of the lock if it is known not to be held.
	lost error

	// exchange ends when the service is not listened to any more. Then response and err say what came of it. Nil until the
	// service is called.
	exchange context.Context // It belongs to the function, not to the call.
	response *envelope.Response
	err      error
}

// doLocked calls the service and renews the lock until it answers or ctx ends.
func (f *Forwarder) doLocked(ctx context.Context, call *Call, request *request) (*envelope.Response, error) {
	l := call.Lock
	l.forwarder, l.timers = f, servertime.Timers(f.Clock)
	l.logger = f.Logger.WithValues("namespace", l.Granted.Namespace, "lock", string(l.Granted.Spec.FullKey()), "function", call.Request.Call.Function)
	now := l.timers.Now()
	// Acquiring the lock may have taken a part of its ttl already.
	left := min(l.Granted.Spec.ExpireTime.Sub(f.Clock.Now()), l.TTL)
	l.deadline, l.expiry = now.Add(call.Route.Timeout), now.Add(left)
	l.renewal = now.Add(l.pause(0) - l.TTL + left)
	var end context.CancelFunc
	l.exchange, end = context.WithCancel(context.WithoutCancel(ctx))
	route, id, body, header, room := call.Route, request.ID, request.encode(), request.header, call.Answer
	f.Background.Run(func(background context.Context) {
		defer end()
		l.err = f.recovered(func() (err error) {
			l.response, err = f.Client.do(background, route, id, body, header, room)
			return err
		})
	})
	l.renewDuringExchange(ctx)
	select {
	case <-l.exchange.Done():
		return l.response, l.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// End ends the lock when the call is over, and returns what became of it before, as [wire.Lost] tells it, or "" if it lasted.
//
// While the service may still be running the function, that is left to the background, as isLeft tells, and exchanged is
// called there when the service is not listened to any more.
func (l *Lock) End(ctx context.Context, exchanged func()) (lost string, isLeft bool) {
	if l.exchange == nil {
		_ = l.Release(ctx) // Why it failed is in the log.
		return "", false
	}
	if l.exchange.Err() == nil || l.mayRun() {
		l.forwarder.Background.Run(func(ctx context.Context) { l.finish(ctx, exchanged) })
		return "", true
	}
	err := l.lost
	if err == nil {
		err = l.Release(ctx)
	}
	switch {
	case errors.Is(err, lock.ErrExpired):
		return wire.LostExpired, false
	case errors.Is(err, lock.ErrOwnerMismatch):
		return wire.LostTaken, false
	case errors.Is(err, lock.ErrNotHeld):
		return wire.LostReleased, false
	case err != nil && servertime.Left(l.expiry, l.timers.Now()) <= 0:
		return wire.LostUnknown, false
	}
	return "", false
}

// mayRun reports whether the function may still be running when the exchange has ended.
func (l *Lock) mayRun() bool {
	failure, ok := errors.AsType[*CallError](l.err)
	return l.err != nil && (!ok || failure.MayRun)
}

// finish renews the lock until the function is over, and then releases it. If ctx ends before, so does the exchange, and the
// lock is left for the rest of the timeout.
func (l *Lock) finish(ctx context.Context, exchanged func()) {
	exchanged = sync.OnceFunc(exchanged)
	defer exchanged() // Also after a panic.
	l.renewDuringExchange(ctx)
	<-l.exchange.Done()
	l.response = nil // Its room is given back, and the lock may last for long.
	exchanged()
	if l.mayRun() {
		untilDeadline, cancel := context.WithTimeout(ctx, l.left())
		defer cancel()
		l.renewUntil(untilDeadline)
	}
	switch {
	case l.lost != nil:
	case l.mayRun() && l.left() > 0:
		l.leave(ctx)
	default:
		_ = l.Release(context.WithoutCancel(ctx)) // Why it failed is in the log.
	}
}

// left is for how much longer the function may run. It is not less than zero.
func (l *Lock) left() time.Duration { return max(0, l.deadline.Sub(l.timers.Now())) }

func (l *Lock) renewDuringExchange(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(l.exchange, cancel) // The exchange has an end of its own.
	defer stop()
	l.renewUntil(ctx)
}

// renewUntil renews the lock until ctx ends or the lock is lost. After a suspend it renews at once.
func (l *Lock) renewUntil(ctx context.Context) {
	if l.lost != nil {
		return
	}
	timer := l.timers.NewTimer(l.untilRenewal())
	defer timer.Stop()
	for l.lost == nil {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
		}
		if l.untilRenewal() <= 0 {
			l.renew(ctx)
		}
		timer.Reset(l.untilRenewal())
	}
}

// untilRenewal returns how long to sleep; zero or less if a renewal is due.
func (l *Lock) untilRenewal() time.Duration {
	now := l.timers.Now()
	if servertime.Jump(l.renewal, now) > 0 {
		return 0
	}
	return min(l.renewal.Sub(now), lookAgainAfter)
}

// renew makes one attempt.
func (l *Lock) renew(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.pause(0))
	defer cancel()
	sent := l.timers.Now()
	err := l.forwarder.recovered(func() error {
		renewed, err := l.Renew(ctx, 0)
		if err == nil && (renewed.UID != l.Granted.UID || !renewed.Spec.AcquireTime.Equal(l.Granted.Spec.AcquireTime)) {
			// A later grant under the same owner token, which was not this one's to renew.
			return lock.ErrOwnerMismatch
		}
		return err
	})
	switch {
	case err == nil:
		l.failures, l.expiry = 0, sent.Add(l.TTL)
	case errors.Is(err, lock.ErrNotHeld), errors.Is(err, lock.ErrOwnerMismatch):
		l.lost = err
		l.logger.Info("Lock was lost while its function is running in another service", "reason", err.Error())
	default:
		l.failures++
		l.logger.V(1).Info("Lock could not be renewed", "reason", err.Error())
	}
	l.renewal = l.timers.Now().Add(l.pause(l.failures))
}

// leave makes the lock last for as long as the function may run: nothing will renew or release it.
func (l *Lock) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	ttl := min(l.left().Truncate(time.Millisecond)+time.Millisecond, l.forwarder.MaxTTL)
	if _, err := l.Renew(ctx, ttl); err != nil {
		l.logger.Error(err, "Failed to keep a lock for the rest of its function")
	}
}

// pause returns how long after its grant or its last renewal, and so many failures since, the lock is renewed.
func (l *Lock) pause(failures int) time.Duration {
	return max(l.forwarder.Pause(l.TTL, failures), shortestPause)
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
