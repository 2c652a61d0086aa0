package rules

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
)

var forceReasonPath = field.NewPath("metadata", "annotations").Key(v1alpha1.ForceReleaseReasonAnnotation)

// ForceReason returns the reason for a forced release, which the user must have set in
// [v1alpha1.ForceReleaseReasonAnnotation] before. The error is an [*InvalidError] if the
// annotation is missing or blank.
func ForceReason(lock *v1alpha1.Lock) (string, error) {
	reason := strings.TrimSpace(forceReason(lock))
	if reason != "" {
		return reason, nil
	}
	return "", &InvalidError{Problems: field.ErrorList{field.Required(forceReasonPath, fmt.Sprintf(
		"%s; to take it from its holder, first say why: kubectl annotate lock %s -n %s %s=\"...\"; then delete it again",
		HeldBy(lock), lock.Name, lock.Namespace, v1alpha1.ForceReleaseReasonAnnotation))}}
}

// NeedsForce reports whether the change, which was admitted as next, needs the right to force a
// release: it changes the reason on a lock of another holder.
func (c Change) NeedsForce(next *v1alpha1.Lock, now time.Time, allowance time.Duration) bool {
	return !c.User.Holds(c.Old) && forceReason(next) != forceReason(c.Old) && Reclaim(c.Old, now, allowance) != nil
}

// keepForceReason undoes a holder's change to the reason on its own lock. A holder needs no force.
// It must not set the reason in the name of another user, nor remove a reason that another user
// gave.
func keepForceReason(next, old *v1alpha1.Lock) {
	reason := forceReason(old)
	switch {
	case forceReason(next) == reason:
	case reason == "":
		dropAnnotation(next, v1alpha1.ForceReleaseReasonAnnotation)
	default:
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, v1alpha1.ForceReleaseReasonAnnotation, reason)
	}
}

func validateForceReason(next, old *v1alpha1.Lock) field.ErrorList {
	if reason := forceReason(next); reason == forceReason(old) || utf8.RuneCountInString(reason) <= MaxReasonLength {
		return nil
	}
	return field.ErrorList{field.TooLong(forceReasonPath, field.OmitValueType{}, MaxReasonLength)}
}

func forceReason(lock *v1alpha1.Lock) string {
	return lock.Annotations[v1alpha1.ForceReleaseReasonAnnotation]
}
