package rules

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Reasons why a transition is not allowed; match them with [errors.Is].
var (
	// ErrHeld means that the lock has a holder. The error is a [*HeldError].
	ErrHeld = errors.New("lock is held")
	// ErrNotHeld means that the lock has no holder: it was never acquired, was
	// released or has expired.
	ErrNotHeld = errors.New("lock is not held")
	// ErrOtherGrant means that the lock is held, but by another grant than that of a [Precondition]. It matches
	// [ErrNotHeld] too.
	ErrOtherGrant error = otherGrantError{}
	// ErrOwnerMismatch means that the lock is held under another owner token, or by another holder
	// than that of a [Proof].
	ErrOwnerMismatch = errors.New("lock is held by another owner")
	// ErrStale means that the object has changed since the caller read it. The caller should read
	// it again and repeat the change.
	ErrStale = errors.New("the lock has changed since it was read")
	// ErrInvalid means that the request breaks a rule of the Lock type. The error is
	// an [*InvalidError].
	ErrInvalid = errors.New("invalid lock request")
	// ErrInvalidKey means that a key or a function is empty, too long, or has characters that
	// [v1alpha1.ValidateKey] refuses. It matches [ErrInvalid] too.
	ErrInvalidKey = fmt.Errorf("invalid key: %w", ErrInvalid)
	// ErrExpired means that the lock has ended by its ttl and its object still exists, or that a renewal came too late and
	// the lock was deleted for that. Of a renewal or a release it means that the lock was held under the caller's owner
	// token. It matches [ErrNotHeld] too.
	ErrExpired = fmt.Errorf("lock has expired: %w", ErrNotHeld)
)

// HeldError says that a lock is not to be had, and names its holder and the time of expiry. It never
// contains the owner token.
type HeldError struct {
	Key v1alpha1.FullKey
	// Holder is the authenticated identity that acquired the lock. Empty if the holder changed too
	// often to be seen, or if IsExpired; ExpireTime is then zero.
	Holder string
	// HolderUID tells that identity from others of its name. Empty if it has none, or if it is not known.
	HolderUID string
	// AcquireTime is when that holder acquired it. Zero if unknown.
	AcquireTime time.Time
	// ExpireTime is when the lock ends unless it is renewed.
	ExpireTime time.Time
	// IsExpired says that the lock has no holder any more, but may not be taken over yet: clocks may
	// differ.
	IsExpired bool
	// Waiting is how many callers go on waiting for the lock, as the home of its line told a caller whose wait has ended.
	// Nil if it was not told.
	Waiting *int
}

// Error implements error.
func (e *HeldError) Error() string {
	switch {
	case e.IsExpired:
		return fmt.Sprintf("%s has expired, but is kept a moment longer, since clocks may differ", e.Key)
	case e.Holder == "":
		return fmt.Sprintf("%s is held", e.Key)
	}
	return fmt.Sprintf("%s is held by %q until %s", e.Key, e.Holder, v1alpha1.NewTimestamp(e.ExpireTime))
}

// IsBy reports whether the user is the holder, see [User.Holds].
func (e *HeldError) IsBy(user User) bool { return user.is(e.Holder, e.HolderUID) }

// Is makes a HeldError match [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// FullError says that a namespace has as many locks as it may have.
type FullError struct {
	Namespace string
	// Max is how many it may have.
	Max int
}

// Error implements error.
func (e *FullError) Error() string {
	return fmt.Sprintf("namespace %s has as many locks as it may have, %d; release some, or have --max-locks-per-namespace of lock-operator raised", e.Namespace, e.Max)
}

// otherGrantError is the type of [ErrOtherGrant].
type otherGrantError struct{}

// Error implements error.
func (otherGrantError) Error() string { return "the grant has ended, and another one holds the lock" }

// Is makes it match [ErrNotHeld].
func (otherGrantError) Is(target error) bool { return target == ErrNotHeld }

// InvalidError lists every field that breaks a rule, with its path and the bound.
type InvalidError struct {
	Problems field.ErrorList
}

// Error implements error.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("%s: %s", ErrInvalid, e.Problems.ToAggregate())
}

// Is makes an InvalidError match [ErrInvalid], and [ErrInvalidKey] if the key is invalid.
func (e *InvalidError) Is(target error) bool {
	return target == ErrInvalid || target == ErrInvalidKey && slices.ContainsFunc(e.Problems, isAboutKey)
}

func isAboutKey(problem *field.Error) bool {
	return problem.Field == "spec.key" || problem.Field == "spec.function"
}
