package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/refusal"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

// requestError translates the error of a failed request for the caller of an operation. Owners are
// the owner tokens in the request. The answer may repeat them, whatever it says: that of a policy or
// a webhook any field, and that of a list the address.
func (e *Engine) requestError(operation string, err error, owners ...string) error {
	refused, isRefused := refusal.Of(err)
	err = refusal.WithoutOwners(err, owners...)
	switch {
	case errors.Is(err, lock.ErrUnavailable): // It says so already.
	case isOutcome(err):
	case !definitelyNotApplied(err), neverSent(err), apierrors.IsTooManyRequests(err):
		return fmt.Errorf("%s: %w: %w", operation, lock.ErrUnavailable, err)
	case isRefused:
		reason := refused.Reason(owners...)
		if e.logged.IsDue(refused.Source, servertime.Timers(e.clock).Now()) {
			e.log.Info("The cluster refuses locks", "source", refused.Source, "operation", operation, "reason", reason)
		}
		return fmt.Errorf("%s: %w", operation, &lock.RefusedError{Reason: reason})
	case !e.isAdmitted && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)):
		// Not the caller's fault: a freshly started API server refuses the operator until it has
		// loaded the roles.
		if e.logged.IsDue(refusal.Explanation(err), servertime.Timers(e.clock).Now()) {
			e.log.Error(err, "The API server refuses what the roles of the operator should allow", "operation", operation)
		}
		return fmt.Errorf("%s: %w: %w", operation, lock.ErrUnavailable, err)
	case apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, v1alpha1.CauseTypeHeld):
		return fmt.Errorf("%s: %w: %w", operation, lock.ErrForbidden, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s: %w: %w", operation, lock.ErrUnauthenticated, err)
	case apierrors.IsInvalid(err):
		return fmt.Errorf("%s: %w: %w", operation, lock.ErrInvalid, err)
	}
	return fmt.Errorf("%s: %w", operation, err)
}

// isOutcome reports whether the rules have decided, and not the answer to a request.
func isOutcome(err error) bool {
	outcomes := []error{rules.ErrHeld, rules.ErrNotHeld, rules.ErrOwnerMismatch, rules.ErrStale, rules.ErrInvalid}
	return slices.ContainsFunc(outcomes, func(outcome error) bool { return errors.Is(err, outcome) })
}

// checkRoom refuses a lock that is new to a namespace which has as many as it may have, as far as the
// informer has shown.
func (e *Engine) checkRoom(namespace string, key v1alpha1.FullKey) error {
	if e.maxPerNamespace <= 0 || e.keyInformer != nil ||
		e.lockCache.hasRoom(types.NamespacedName{Namespace: namespace, Name: key.ObjectName()}, e.maxPerNamespace) {
		return nil
	}
	full := &rules.FullError{Namespace: namespace, Max: e.maxPerNamespace}
	if e.logged.IsDue(full.Error(), servertime.Timers(e.clock).Now()) {
		e.log.Info("Refusing further locks of a namespace", "namespace", namespace, "max", e.maxPerNamespace)
	}
	return &lock.RefusedError{Reason: full.Error()}
}

// maxQuotaLag is for how long after a delete a quota may still count the lock.
const maxQuotaLag = 5 * time.Second

// isQuota reports whether the error for a caller tells of a quota.
func isQuota(err error) bool {
	refused, ok := errors.AsType[*lock.RefusedError](err)
	return ok && strings.HasPrefix(refused.Reason, refusal.ExceededQuota)
}
