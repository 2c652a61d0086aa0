package lock

import (
	"errors"
	"fmt"

	"forrst.dev/lock-operator/lock/rules"
)

// Outcomes that a caller can act on; match them with [errors.Is].
var (
	// ErrHeld means that the lock has a holder. The error is, or wraps, a [*HeldError].
	ErrHeld = rules.ErrHeld
	// ErrTimeout means that the lock was held for as long as the caller would wait. It
	// comes with the [*HeldError] of the last holder and so matches [ErrHeld] too.
	ErrTimeout = errors.New("timed out waiting for the lock")
	// ErrNotHeld means that the lock has no holder: it was never acquired, was
	// released or has expired.
	ErrNotHeld = rules.ErrNotHeld
	// ErrExpired means that the lock was held under the caller's owner token and
	// has ended by its ttl, be it before the caller learnt of it. It matches
	// [ErrNotHeld] too.
	ErrExpired = rules.ErrExpired
	// ErrOwnerMismatch means that the lock is held under another owner token.
	ErrOwnerMismatch = rules.ErrOwnerMismatch
	// ErrInvalid means that the request breaks a rule of the Lock type. The error is,
	// or wraps, an [*InvalidError] unless the API server found the fault.
	ErrInvalid = rules.ErrInvalid
	// ErrInvalidKey means that a key or a function is empty, too long or has control
	// characters. It matches [ErrInvalid] too.
	ErrInvalidKey = rules.ErrInvalidKey
	// ErrUnauthenticated means that a façade does not know who the caller is: there is no
	// bearer token, or it is not valid, or not any more. Nothing was done.
	ErrUnauthenticated = errors.New("the caller is not authenticated")
	// ErrForbidden means that the caller lacks a right that a façade asks for. Nothing was
	// done. The text says which right, and where.
	ErrForbidden = errors.New("the caller is not allowed")
	// ErrUnavailable means that the lock service could not be reached or did not
	// answer in time. A failed acquire leaves no lock behind that the caller would
	// have to release; a failed renewal or release may have happened, and repeating it
	// is safe.
	ErrUnavailable = errors.New("lock service is unavailable")
)

// Outcomes of the SDK. Whatever ended a lock matches [ErrNotHeld], except that a lock
// which could not be renewed in time may still be held, and matches [ErrUnavailable].
var (
	// ErrDoubleLock means that the context already holds the lock that was asked for.
	// Waiting for it would never end. The error names the key.
	ErrDoubleLock = errors.New("double lock")
	// ErrReleased means that the lock ended because [Held.Release] was called.
	ErrReleased = fmt.Errorf("lock was released: %w", ErrNotHeld)
	// ErrForceReleased means that the lock was ended by force before its time.
	ErrForceReleased = fmt.Errorf("lock was force-released: %w", ErrNotHeld)
	// ErrTakenOver means that the lock has been granted to another holder since.
	ErrTakenOver = fmt.Errorf("lock was taken over: %w", ErrNotHeld)
)

// HeldError says who holds a lock and until when. It never holds the owner token.
type HeldError = rules.HeldError

// InvalidError lists every field that breaks a rule, with its path and the bound.
type InvalidError = rules.InvalidError
