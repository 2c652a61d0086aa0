package lock

import (
	"errors"

	"forrst.dev/lock-operator/lock/rules"
)

// Outcomes that a caller can act on; match them with [errors.Is].
var (
	// ErrHeld means that somebody holds the lock. The error is a [*HeldError].
	ErrHeld = rules.ErrHeld
	// ErrNotHeld means that nobody holds the lock: it was never acquired, was
	// released or has expired.
	ErrNotHeld = rules.ErrNotHeld
	// ErrExpired means that the lock was held under the caller's owner token and
	// has ended by its ttl, be it before the caller learnt of it. It matches
	// [ErrNotHeld] too.
	ErrExpired = rules.ErrExpired
	// ErrOwnerMismatch means that the lock is held under another owner token.
	ErrOwnerMismatch = rules.ErrOwnerMismatch
	// ErrInvalid means that the request breaks a rule of the Lock type.
	ErrInvalid = rules.ErrInvalid
	// ErrUnavailable means that the API server could not be reached or did not
	// answer in time. A failed acquire leaves no lock behind that the caller would
	// have to release; a failed release may have happened, and repeating it is safe.
	ErrUnavailable = errors.New("lock service is unavailable")
)

// HeldError says who holds a lock and until when. It never holds the owner token.
type HeldError = rules.HeldError
