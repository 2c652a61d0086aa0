package locks

import (
	"context"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// ForcedRelease is a forced release that has been validated.
type ForcedRelease struct {
	locks  *Locks
	caller *access.Caller
	key    v1alpha1.FullKey
	reason string
	// precondition limits it.
	precondition lock.Precondition
}

// PrepareForceRelease validates the reason of a forced release: at most
// [rules.MaxReasonLength] characters, and not blank if the caller is authenticated, as with
// kubectl. Without an identity to record it with, a reason is optional: the Forrst protocol
// knows no such argument. Nothing is done yet. The error is a [*lock.InvalidError] about the
// field reason.
func (l *Locks) PrepareForceRelease(caller *access.Caller, key v1alpha1.FullKey, reason string) (ForcedRelease, error) {
	path := field.NewPath("reason")
	var problem *field.Error
	switch {
	case utf8.RuneCountInString(reason) > rules.MaxReasonLength:
		problem = field.TooLong(path, field.OmitValueType{}, rules.MaxReasonLength)
	case caller.IsAuthenticated && strings.TrimSpace(reason) == "":
		problem = field.Required(path, "must say why the lock is taken from its holder")
	default:
		return ForcedRelease{locks: l, caller: caller, key: key, reason: reason}, nil
	}
	return ForcedRelease{}, &lock.InvalidError{Problems: field.ErrorList{problem}}
}

// LimitToGrant limits it to the grant with this fencing token. Zero means any grant.
func (r *ForcedRelease) LimitToGrant(fencingToken int64) { r.precondition.FencingToken = fencingToken }

// Release ends the lock of any holder on behalf of the caller, and records the reason, see
// [lock.Backend].
func (r *ForcedRelease) Release(ctx context.Context) error {
	endTurn, err := r.locks.turn(ctx, r.caller, limits.Work)
	if err != nil {
		return err
	}
	defer endTurn()
	return r.locks.backend.ForceRelease(lock.ContextWithUser(ctx, r.caller.Holder()), r.caller.Namespace, r.key, r.reason, r.precondition)
}
