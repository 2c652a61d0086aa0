package rules

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
)

var renewalPolicyPath = specPath.Child("renewalPolicy")

// renewalsPerTTL is how often the operator renews a lock within its ttl: two renewals may fail.
const renewalsPerTTL = 3

// AsksForOperatorRenewal reports whether the change may lead to a lock that the operator renews, and that
// it does not renew already: [Limits.MaxOperatorRenewal] is then to be set. A nil old is a create.
func AsksForOperatorRenewal(next, old *v1alpha1.Lock, now time.Time) bool {
	if next.Spec.RenewalPolicy != v1alpha1.RenewalByOperator {
		return false
	}
	return old == nil || old.Spec.RenewalPolicy != v1alpha1.RenewalByOperator || next.Spec.Owner != old.Spec.Owner ||
		isNewAcquisition(next, old) || Expired(old, now)
}

// beginRenewalPolicy stamps how long the operator renews the lock from now on, or that it does not.
func (l Limits) beginRenewalPolicy(spec *v1alpha1.LockSpec, now time.Time) field.ErrorList {
	spec.RenewalEndTime = nil
	switch spec.RenewalPolicy {
	case "", v1alpha1.RenewalByHolder:
		return nil
	case v1alpha1.RenewalByOperator:
	default:
		return field.ErrorList{field.NotSupported(renewalPolicyPath, spec.RenewalPolicy,
			[]v1alpha1.RenewalPolicy{v1alpha1.RenewalByHolder, v1alpha1.RenewalByOperator})}
	}
	if l.MaxOperatorRenewal <= 0 {
		return field.ErrorList{field.Forbidden(renewalPolicyPath, fmt.Sprintf(
			"Operator is not allowed in this namespace; its administrator allows it by the annotation %s, such as 720h, on the namespace",
			v1alpha1.MaxOperatorRenewalAnnotation))}
	}
	spec.RenewalEndTime = after(v1alpha1.NewTimestamp(now), l.MaxOperatorRenewal)
	return validateOperatorTTL(spec)
}

// changeRenewalPolicy is [Limits.beginRenewalPolicy] for a change within a grant: a lock that the operator
// renews already keeps its renewalEndTime.
func (l Limits) changeRenewalPolicy(next, old *v1alpha1.LockSpec, now time.Time) field.ErrorList {
	if next.RenewalPolicy == v1alpha1.RenewalByOperator && old.RenewalPolicy == v1alpha1.RenewalByOperator {
		return validateOperatorTTL(next)
	}
	return l.beginRenewalPolicy(next, now)
}

func validateOperatorTTL(spec *v1alpha1.LockSpec) field.ErrorList {
	switch {
	case spec.TTL == nil:
		return field.ErrorList{field.Forbidden(renewalPolicyPath, "Operator needs a ttl: a lock that ends at an absolute expireTime is not renewed")}
	case spec.TTL.Duration < v1alpha1.MinOperatorRenewalTTL:
		return field.ErrorList{field.Invalid(specPath.Child("ttl"), spec.TTL.Duration.String(),
			fmt.Sprintf("must be at least %s where renewalPolicy is Operator", v1alpha1.MinOperatorRenewalTTL))}
	}
	return nil
}

// OperatorRenewal is what the operator is to do about a lock.
type OperatorRenewal int

const (
	// NoRenewal is for a lock that the operator does not renew.
	NoRenewal OperatorRenewal = iota
	// Renewal is for a lock that the operator renews in time.
	Renewal
	// RenewalOver is for a held lock that the operator does not renew any more, because of its renewalEndTime.
	RenewalOver
)

// NextOperatorRenewal returns whether the operator is to renew the lock, and how long after now; zero or less if
// at once. It does not renew a lock that has expired, that is being deleted, or whose holderRef has ended,
// and does not renew beyond the renewalEndTime.
func NextOperatorRenewal(lock *v1alpha1.Lock, now time.Time) (OperatorRenewal, time.Duration) {
	spec := &lock.Spec
	if spec.RenewalPolicy != v1alpha1.RenewalByOperator || spec.RenewalEndTime == nil || spec.RenewTime == nil || spec.TTL == nil ||
		!lock.DeletionTimestamp.IsZero() || spec.HolderEndTime != nil || Expired(lock, now) {
		return NoRenewal, 0
	}
	// The holder may have renewed it with a ttl that is too short: that must not cause many writes.
	due := spec.RenewTime.Add(max(spec.TTL.Duration, v1alpha1.MinOperatorRenewalTTL) / renewalsPerTTL)
	if due.Before(now) {
		due = now
	}
	if due.Add(spec.TTL.Duration).After(spec.RenewalEndTime.Time) {
		return RenewalOver, 0
	}
	return Renewal, due.Sub(now)
}
