package forward

import (
	"context"
	"errors"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/servertime"
)

// Lock is a lock that ends with the function inside it. It is not safe for concurrent use.
type Lock struct {
	// Granted is the lock as it was granted. Required.
	Granted *v1alpha1.Lock
	// TTL is how long the lock lives unless it is renewed. Required.
	TTL time.Duration
	// Renew replaces the remaining time of the lock by a whole ttl, of which zero means the
	// one that the lock has. Errors are those of [lock.Backend]. Required.
	Renew func(ctx context.Context, ttl time.Duration) (*v1alpha1.Lock, error)
	// Release ends the lock, even if ctx ends, and logs why it could not. Errors are those of
	// [lock.Backend]. Required.
	Release func(ctx context.Context) error

	// run is the function. Nil until the service is called.
	run *lockedRun
}

// End ends the lock when the call is over, and returns what became of it before, as
// [wire.Lost] tells it, or "" if it lasted.
//
// While the service may still be running the function, that is left to the background, as
// isLeft tells, and exchanged is called there when the service is not listened to any more.
func (l *Lock) End(ctx context.Context, exchanged func()) (lost string, isLeft bool) {
	if l.run == nil {
		_ = l.Release(ctx) // Why it failed is in the log.
		return "", false
	}
	if l.run.exchange.Err() == nil || l.run.mayRun() {
		l.run.Background.Run(func(ctx context.Context) { l.run.finish(ctx, exchanged) })
		return "", true
	}
	err := l.run.lost
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
	case err != nil && servertime.Left(l.run.expiry, l.run.timers.Now()) <= 0:
		return wire.LostUnknown, false
	}
	return "", false
}
