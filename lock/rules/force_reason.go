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

// ForceReason returns why the lock is to be taken from its holder, which the user who does
// so has to have said beforehand in [v1alpha1.ForceReleaseReasonAnnotation]. The error is an
// [*InvalidError] if it was not said.
func ForceReason(lock *v1alpha1.Lock) (string, error) {
	reason := strings.TrimSpace(forceReason(lock))
	if reason != "" {
		return reason, nil
	}
	return "", &InvalidError{Problems: field.ErrorList{field.Required(forceReasonPath, fmt.Sprintf(
		"%s; to take it from its holder, first say why: kubectl annotate lock %s -n %s %s=\"...\"; then delete it again",
		HeldBy(lock), lock.Name, lock.Namespace, v1alpha1.ForceReleaseReasonAnnotation))}}
}

// NeedsForce reports whether the change, which was admitted as next, needs the right to
// force a release: it changes the reason on a lock of another holder.
func (c Change) NeedsForce(next *v1alpha1.Lock, now time.Time, allowance time.Duration) bool {
	return c.User != c.Old.Spec.Holder && forceReason(next) != forceReason(c.Old) && Reclaim(c.Old, now, allowance) != nil
}

// keepForceReason undoes what a holder does to the reason on a lock of its own: a
// holder needs no force, and must neither give the reason in the name of a user who does nor
// take that reason off again.
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
	if reason := forceReason(next); reason == forceReason(old) || utf8.RuneCountInString(reason) <= maxReasonLength {
		return nil
	}
	return field.ErrorList{field.TooLong(forceReasonPath, field.OmitValueType{}, maxReasonLength)}
}

func forceReason(lock *v1alpha1.Lock) string {
	return lock.Annotations[v1alpha1.ForceReleaseReasonAnnotation]
}
