package observe

import (
	"context"
	"errors"

	"forrst.dev/lock-operator/lock"
)

// Acquired is how a request for a lock ended.
type Acquired string

// The ends of requests.
const (
	Granted Acquired = "granted"
	// Held means that the lock is held and the caller did not wait; TimedOut that it was held for the
	// whole wait.
	Held     Acquired = "held"
	TimedOut Acquired = "timeout"
	// Cancelled means that the caller has gone.
	Cancelled Acquired = "cancelled"
	Invalid   Acquired = "invalid"
	// Refused means that a quota, a policy or the bound of the namespace refuses the lock, or that a right
	// is missing.
	Refused Acquired = "refused"
	// Limited means that the caller, or the service, is at a limit.
	Limited     Acquired = "limited"
	Unavailable Acquired = "unavailable"
)

// AllAcquired are all ends of requests.
var AllAcquired = []Acquired{Granted, Held, TimedOut, Cancelled, Invalid, Refused, Limited, Unavailable}

// EndOf returns how a request ended of which a [lock.Backend] returned the error, which may be nil. It
// does not know of limits.
func EndOf(err error) Acquired {
	switch {
	case err == nil:
		return Granted
	case errors.Is(err, lock.ErrTimeout):
		return TimedOut
	case errors.Is(err, lock.ErrHeld):
		return Held
	case errors.Is(err, lock.ErrInvalid):
		return Invalid
	case errors.Is(err, lock.ErrRefused), errors.Is(err, lock.ErrForbidden):
		return Refused
	case errors.Is(err, lock.ErrUnavailable):
		return Unavailable
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Cancelled
	}
	return Unavailable
}
