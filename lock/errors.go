package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// Errors that a caller can act on; match them with [errors.Is].
var (
	// ErrHeld means that the lock has a holder. The error is, or wraps, a [*HeldError].
	ErrHeld = rules.ErrHeld
	// ErrTimeout means that the lock was held for the caller's whole wait. It comes with the
	// [*HeldError] of the last holder and therefore matches [ErrHeld] too.
	ErrTimeout = errors.New("timed out waiting for the lock")
	// ErrNotHeld means that the lock has no holder: it was never acquired, was
	// released or has expired.
	ErrNotHeld = rules.ErrNotHeld
	// ErrExpired means that the lock has ended by its ttl and its object still exists, or that a renewal came too late and
	// the lock was deleted for that. Of a renewal or a release it means that the lock was held under the caller's owner
	// token. It matches [ErrNotHeld] too.
	ErrExpired = rules.ErrExpired
	// ErrOtherGrant means that the lock is held, but by another grant than that of a [Precondition]. Nothing was done. It
	// matches [ErrNotHeld] too, and a façade tells no more than that.
	ErrOtherGrant = rules.ErrOtherGrant
	// ErrOwnerMismatch means that the lock is held under another owner token.
	ErrOwnerMismatch = rules.ErrOwnerMismatch
	// ErrStale means that the lock is not stored in the version that a [Proof] is limited to. Nothing
	// was done.
	ErrStale = rules.ErrStale
	// ErrInvalid means that the request breaks a rule of the Lock type. The error is, or wraps, an
	// [*InvalidError] unless the API server found the mistake.
	ErrInvalid = rules.ErrInvalid
	// ErrInvalidKey means that a key or a function is empty, too long, or has characters that
	// [v1alpha1.ValidateKey] refuses. It matches [ErrInvalid] too.
	ErrInvalidKey = rules.ErrInvalidKey
	// ErrPageExpired means that a list was not continued in time, and has to begin again.
	ErrPageExpired = errors.New("the list can no longer be continued")
	// ErrUnauthenticated means that a façade or the API server could not authenticate the caller: its
	// credentials are missing, invalid or no longer valid. Nothing was done.
	ErrUnauthenticated = errors.New("the caller is not authenticated")
	// ErrForbidden means that the caller lacks a right that a façade or the API server requires.
	// Nothing was done. The text names the right and its scope.
	ErrForbidden = errors.New("the caller is not allowed")
	// ErrRefused means that the cluster refuses what the caller may ask for: a quota is exceeded, an
	// admission policy or webhook of a third party denies it, the namespace is being terminated, or it
	// has as many locks as it may have.
	// Nothing was done, and repeating the request does not help until that has changed. The error
	// is, or wraps, a [*RefusedError].
	ErrRefused = errors.New("refused by the cluster")
	// ErrUnavailable means that the lock service could not be reached or did not answer in time.
	// After a failed acquire the caller has no lock to release. A failed renewal or release may
	// have happened; repeating it is safe. So may a forced release, but repeating that may end the
	// lock of the next holder.
	ErrUnavailable = errors.New("lock service is unavailable")
	// ErrNothingDone comes together with [ErrUnavailable] if the call has certainly changed nothing and will not, such as one
	// that was refused before it began. Without it, a state that is found later may be the work of the call.
	ErrNothingDone = errors.New("nothing was done")
	// ErrFoundElsewhere ends a wait because another call of the same request has, or had, the lock: an earlier or later
	// try, or one that was sent again with the same derived owner token. It matches [ErrUnavailable] too.
	ErrFoundElsewhere = fmt.Errorf("%w: another call of the same request has been granted the lock", ErrUnavailable)
)

// Errors of the SDK. If a lock has ended, its error matches [ErrNotHeld]. A lock that could not be
// renewed in time may still be held; its error matches [ErrUnavailable] instead. One that was
// detached is held elsewhere or for the rest of its ttl.
var (
	// ErrDoubleLock means that the context already holds the requested lock, and waiting for it
	// would never end. The error names the key.
	ErrDoubleLock = errors.New("double lock")
	// ErrLockOrder means that the context holds a lock that comes after the requested one, see [WithOrderCheck]. The error
	// names both.
	ErrLockOrder = errors.New("locks out of order")
	// ErrReleased means that the lock ended because [Held.Release] was called.
	ErrReleased = fmt.Errorf("lock was released: %w", ErrNotHeld)
	// ErrDetached means that [Held.Detach] has ended the hold in this process, and not the lock.
	ErrDetached = errors.New("lock was detached")
	// ErrForceReleased means that the lock was ended before its deadline, and not by its owner token: by a forced
	// release, or by the operator because the object of [WithHolderRef] has ended, or the namespace.
	ErrForceReleased = fmt.Errorf("lock was force-released: %w", ErrNotHeld)
	// ErrTakenOver means that another holder has acquired the lock since.
	ErrTakenOver = fmt.Errorf("lock was taken over: %w", ErrNotHeld)
)

// HeldError names the holder of a lock and the time of expiry. It never contains the owner token.
type HeldError = rules.HeldError

// RefusedError tells why the cluster refuses a lock, or a change to one.
type RefusedError struct {
	// Reason is what the API server or the operator says, without owner tokens.
	Reason string
}

// Error implements error.
func (e *RefusedError) Error() string { return fmt.Sprintf("%s: %s", ErrRefused, e.Reason) }

// Is makes a RefusedError match [ErrRefused].
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// InterruptedError says that the context of an acquire ended before there was an answer. The caller does
// not hold the lock.
type InterruptedError struct {
	// Key is the full key of the lock.
	Key v1alpha1.FullKey
	// Cause is the error of the context.
	Cause error
	// Held names the holder that was waited for. Nil if none is known.
	Held *HeldError
	// Last is why the last attempt failed, for one that matches [ErrUnavailable]. Nil if none did.
	Last error
}

// Interrupted returns the error for an acquire whose context has ended. Known is what a wait that ended
// now would have returned, or nil.
func Interrupted(ctx context.Context, key v1alpha1.FullKey, known error) error {
	interrupted := &InterruptedError{Key: key, Cause: ctx.Err()}
	if held, ok := errors.AsType[*HeldError](known); ok && (held.Holder != "" || held.IsExpired) {
		interrupted.Held = held
	} else if errors.Is(known, ErrUnavailable) {
		interrupted.Last = known
	}
	return interrupted
}

// Error implements error.
func (e *InterruptedError) Error() string {
	text := fmt.Sprintf("acquire %s: %s", e.Key, e.Cause)
	switch {
	case e.Last != nil:
		return fmt.Sprintf("%s; the last attempt: %s", text, e.Last)
	case e.Held != nil:
		return fmt.Sprintf("%s; %s", text, e.Held)
	}
	return text
}

// Unwrap makes an InterruptedError match the error of the context, and [ErrUnavailable] if the lock
// service did not answer. It does not match [ErrHeld]: the context ended, not the wait.
func (e *InterruptedError) Unwrap() []error {
	if e.Last != nil {
		return []error{e.Cause, e.Last}
	}
	return []error{e.Cause}
}

// LineFullError refuses a caller that would wait for a lock: too many wait already. Nothing was done, and trying
// again later may succeed.
type LineFullError struct {
	// Bound is what is full.
	Bound LineBound `json:"bound"`
	// Waiting are those that wait within it, which is as many as may. Uncounted are those that wait for the same lock and
	// to which the bound does not apply, such as a Job.
	Waiting   int `json:"waiting"`
	Uncounted int `json:"uncounted,omitempty"`
}

// Place is where the caller would stand in the line of its lock, as the last.
func (e *LineFullError) Place() int { return e.Waiting + e.Uncounted + 1 }

// LineBound is what the number of waiting callers is bounded for.
type LineBound string

const (
	// LinePerLock bounds those that wait for one lock.
	LinePerLock LineBound = "lock"
	// LinePerNamespace bounds those that wait for the locks of one namespace.
	LinePerNamespace LineBound = "namespace"
	// LinePerHolder bounds those of one identity, see [rules.Acquisition]'s Holder.
	LinePerHolder LineBound = "holder"
)

// Error implements error.
func (e *LineFullError) Error() string {
	if e.Bound == LinePerLock {
		return fmt.Sprintf("the place in line would be %d, and at most %d may wait for one lock", e.Place(), e.Waiting)
	}
	return fmt.Sprintf("at most %d callers of one %s may wait for locks", e.Waiting, e.Bound)
}

// InvalidError lists every field that breaks a rule, with its path and the bound.
type InvalidError = rules.InvalidError

// operationError says what an error kept from being done.
type operationError struct {
	text string
	err  error
}

// failed wraps an error of what was done to a lock. It names the lock once, though backends and the ends of holds
// name it as well.
func failed(operation string, key v1alpha1.FullKey, namespace string, err error) error {
	text := err.Error()
	subject := fmt.Sprintf("%s %s in namespace %s: ", operation, key, namespace)
	if strings.HasPrefix(text, subject) {
		return err
	}
	return &operationError{text: subject + strings.TrimPrefix(text, string(key)+": "), err: err}
}

// Error implements error.
func (e *operationError) Error() string { return e.text }

// Unwrap makes an operationError match what it wraps.
func (e *operationError) Unwrap() error { return e.err }
