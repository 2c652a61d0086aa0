package lock

import (
	"errors"
	"fmt"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Outcomes that a caller can act on; match them with [errors.Is].
var (
	// ErrHeld means that somebody holds the lock. The error is a [*HeldError].
	ErrHeld = errors.New("lock is held")
	// ErrNotHeld means that nobody holds the lock: it was never acquired, was
	// released or has expired.
	ErrNotHeld = errors.New("lock is not held")
	// ErrOwnerMismatch means that the lock is held under another owner token.
	ErrOwnerMismatch = errors.New("lock is held by another owner")
	// ErrInvalid means that the request breaks a rule of the Lock type.
	ErrInvalid = errors.New("invalid lock request")
	// ErrUnavailable means that the API server could not be reached or did not
	// answer in time. The lock is not acquired by the failed call; a release may
	// or may not have happened, and repeating it is safe.
	ErrUnavailable = errors.New("lock service is unavailable")
)

// HeldError says who holds a lock and until when. It never holds the owner token.
type HeldError struct {
	Key v1alpha1.FullKey
	// Holder is the authenticated identity that acquired the lock.
	Holder string
	// ExpireTime is when the lock ends unless it is renewed.
	ExpireTime time.Time
}

// Error implements error.
func (e *HeldError) Error() string {
	return fmt.Sprintf("%s is held by %q until %s", e.Key, e.Holder, e.ExpireTime.UTC().Format(time.RFC3339Nano))
}

// Is makes a HeldError match [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }
