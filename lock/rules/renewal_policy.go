package rules

import (
	"fmt"
	"hash/crc32"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
)

var renewalPolicyPath = specPath.Child("renewalPolicy")

const (
	// renewalsPerTTL is how often the operator renews a lock within its ttl: two renewals may fail.
	renewalsPerTTL = 3
	// renewalSpread is the part of the time between two renewals by which one may come sooner, so that locks
	// which were renewed at once, as after a change of the leader, are not for ever.
	renewalSpread = 10
	// OperatorRenewalMargin is for how long before the expiry the operator renews a lock no more: a write that is
	// held up must not prolong a lock that others have seen free.
	OperatorRenewalMargin = 2 * time.Second
)

// MaxOperatorRenewal returns for how long after its acquisition the operator renews a lock at most, in a namespace with the
// annotation [v1alpha1.MaxOperatorRenewalAnnotation] and where the cluster allows no more than the ceiling. It is zero
// if the annotation is no positive duration: a mistake must not open what it bounds.
func MaxOperatorRenewal(annotation string, ceiling time.Duration) time.Duration {
	longest, err := time.ParseDuration(annotation)
	if err != nil {
		return 0
	}
	return max(min(longest, ceiling), 0)
}

// AsksForOperatorRenewal reports whether the change may lead to a lock that the operator renews, and that
// it does not renew already: [Limits.MaxOperatorRenewal] is then to be set. A nil old is a create.
func AsksForOperatorRenewal(next, old *v1alpha1.Lock, now time.Time) bool {
	if next.Spec.RenewalPolicy != v1alpha1.RenewalByOperator {
		return false
	}
	return old == nil || old.Spec.RenewalPolicy != v1alpha1.RenewalByOperator || next.Spec.Owner != old.Spec.Owner ||
		isNewAcquisition(next, old) || Expired(old, now)
}

// beginRenewalPolicy stamps how long the operator renews the lock that was acquired at the given time, or that it
// does not.
func (l Limits) beginRenewalPolicy(spec *v1alpha1.LockSpec, acquired, now time.Time) field.ErrorList {
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
	spec.RenewalEndTime = after(v1alpha1.NewTimestamp(acquired), l.MaxOperatorRenewal)
	return validateOperatorTTL(spec, now)
}

// changeRenewalPolicy is [Limits.beginRenewalPolicy] for a change within a grant. A lock that the operator renews
// already keeps its renewalEndTime, and is not judged again unless its ttl changes: other changes, such as that of
// a user who ends it by force, must not depend on it.
func (l Limits) changeRenewalPolicy(next, old *v1alpha1.LockSpec, now time.Time) field.ErrorList {
	switch {
	case next.AcquireTime == nil:
		return nil // The schema refuses it.
	case next.RenewalPolicy != v1alpha1.RenewalByOperator || old.RenewalPolicy != v1alpha1.RenewalByOperator:
		return l.beginRenewalPolicy(next, next.AcquireTime.Time, now)
	case next.TTL.Equal(old.TTL):
		return nil
	}
	return validateOperatorTTL(next, now)
}

// validateOperatorTTL checks that the operator can renew the lock at least once.
func validateOperatorTTL(spec *v1alpha1.LockSpec, now time.Time) field.ErrorList {
	switch {
	case spec.TTL == nil:
		return field.ErrorList{field.Forbidden(renewalPolicyPath, "Operator needs a ttl: a lock that ends at an absolute expireTime is not renewed")}
	case spec.TTL.Duration < v1alpha1.MinOperatorRenewalTTL:
		return tooShortForOperator(spec.TTL.Duration)
	case spec.RenewalEndTime != nil && now.Add(spec.TTL.Duration+spec.TTL.Duration/renewalsPerTTL).After(spec.RenewalEndTime.Time):
		return field.ErrorList{field.Forbidden(renewalPolicyPath, fmt.Sprintf(
			"Operator would never renew the lock: in this namespace it does until %s, which is less than four thirds of the ttl away; set a shorter ttl",
			spec.RenewalEndTime.UTC().Format(time.RFC3339)))}
	}
	return nil
}

func tooShortForOperator(ttl time.Duration) field.ErrorList {
	return field.ErrorList{field.Invalid(specPath.Child("ttl"), ttl.String(),
		fmt.Sprintf("must be at least %s where renewalPolicy is Operator", v1alpha1.MinOperatorRenewalTTL))}
}

// OperatorRenewal is what the operator is to do about a lock.
type OperatorRenewal int

const (
	// NoRenewal is for a lock that the operator does not renew.
	NoRenewal OperatorRenewal = iota
	// Renewal is for a lock that the operator renews in time.
	Renewal
	// RenewalOver is for a held lock that the operator renews no more, because of its renewalEndTime or of what its
	// namespace allows now.
	RenewalOver
)

// NextOperatorRenewal returns whether the operator is to renew the lock, and how long after now; zero or less if
// at once. Longest is what the namespace allows now, see [MaxOperatorRenewal]: the renewalEndTime only shows what it allowed
// when it was stamped, and a lock may be stored that no webhook has stamped. Nothing is renewed beyond either. A lock is
// not renewed that expires within [OperatorRenewalMargin], that is being deleted, or whose holderRef has ended. With [RenewalOver],
// it is to be judged again after the returned time.
func NextOperatorRenewal(lock *v1alpha1.Lock, longest time.Duration, now time.Time) (OperatorRenewal, time.Duration) {
	spec := &lock.Spec
	if spec.RenewalPolicy != v1alpha1.RenewalByOperator || spec.AcquireTime == nil || spec.RenewTime == nil || spec.TTL == nil ||
		!lock.DeletionTimestamp.IsZero() || spec.HolderEndTime != nil || Expired(lock, now.Add(OperatorRenewalMargin)) {
		return NoRenewal, 0
	}
	// An earlier version may have stored a ttl that is too short: that must not cause many writes.
	between := max(spec.TTL.Duration, v1alpha1.MinOperatorRenewalTTL) / renewalsPerTTL
	due := spec.RenewTime.Add(between - between/renewalSpread*time.Duration(crc32.ChecksumIEEE([]byte(lock.UID))%1000)/1000)
	if due.Before(now) {
		due = now
	}
	end := spec.AcquireTime.Add(longest)
	if spec.RenewalEndTime != nil && spec.RenewalEndTime.Time.Before(end) {
		end = spec.RenewalEndTime.Time
	}
	if due.Add(spec.TTL.Duration).After(end) {
		return RenewalOver, between
	}
	return Renewal, due.Sub(now)
}

// RenewedByOperator returns the object whose conditional write renews the lock for the operator. It changes no more than stamps,
// with a renewalEndTime where an earlier version has stored none: whatever the manifest says keeps its text and its field manager.
func RenewedByOperator(lock *v1alpha1.Lock, longest time.Duration, now time.Time) (*v1alpha1.Lock, error) {
	renewed := lock.DeepCopy()
	stampRenewal(&renewed.Spec, now)
	if renewed.Spec.RenewalEndTime == nil {
		renewed.Spec.RenewalEndTime = after(*renewed.Spec.AcquireTime, longest)
	}
	return renewed, recordToken(renewed, lock)
}
