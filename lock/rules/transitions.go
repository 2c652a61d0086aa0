package rules

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Grant returns the object whose creation acquires a free lock. The request must be
// valid, see [Acquisition.Validate], and its owner set.
func Grant(namespace string, request Acquisition, limits Limits, now time.Time) *v1alpha1.Lock {
	spec := request.spec(limits)
	stampGrant(&spec, User{Name: request.Holder, UID: request.HolderUID}, now)
	granted := &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: spec.FullKey().ObjectName()},
		Spec:       spec,
	}
	if request.ID != "" {
		metav1.SetMetaDataAnnotation(&granted.ObjectMeta, v1alpha1.AcquisitionAnnotation, request.ID)
	}
	if request.Connection != "" {
		metav1.SetMetaDataAnnotation(&granted.ObjectMeta, v1alpha1.ConnectionAnnotation, request.Connection)
	}
	return granted
}

// TakeOver returns the object whose conditional update replaces an expired holder. The object
// keeps its identity and loses all other metadata: owner references and labels of a GitOps tool
// belong to the former holder, and could cause the delete of the next holder's lock. The request
// is as in [Grant]. A lock that is being deleted is not taken over; it is to be removed first. The
// error is a [*HeldError].
func TakeOver(current *v1alpha1.Lock, request Acquisition, limits Limits, now time.Time, allowance time.Duration) (*v1alpha1.Lock, error) {
	if err := reclaimInPlace(current, now, allowance); err != nil {
		return nil, err
	}
	return HandOff(current, request, limits, now), nil
}

// reclaimInPlace is [Reclaim] for an update that begins the next grant.
func reclaimInPlace(current *v1alpha1.Lock, now time.Time, allowance time.Duration) error {
	if !current.DeletionTimestamp.IsZero() {
		return HeldBy(current)
	}
	return Reclaim(current, now, allowance)
}

// HandOff returns the object whose conditional update replaces a releasing holder. The caller has
// checked that the holder may release the lock. The object keeps its identity and loses all other
// metadata, as in [TakeOver], the record of who sets which field included. The request is as in [Grant].
func HandOff(current *v1alpha1.Lock, request Acquisition, limits Limits, now time.Time) *v1alpha1.Lock {
	next := Grant(current.Namespace, request, limits, now)
	next.Name, next.UID, next.ResourceVersion = current.Name, current.UID, current.ResourceVersion
	endFieldManagement(next)
	// Key, scope and function are immutable, but the request may spell the same full key in other
	// parts or another normal form.
	next.Spec.Key, next.Spec.Scope, next.Spec.Function = current.Spec.Key, current.Spec.Scope, current.Spec.Function
	distinguishGrant(&next.Spec, &current.Spec)
	return next
}

// withoutTTL is the error for a renewal without ttl of a lock with an absolute expireTime.
const withoutTTL = "the lock ends at an absolute expireTime; say for how long to renew it"

// Renew returns the object whose conditional update replaces the remaining time of the lock by a
// whole ttl; it never adds to it. A ttl of zero means the one that the lock has; another must be
// valid, see [Limits.ValidateTTL]. Current is nil if there is no lock. The API server's record of who
// sets which field ends, unless a user applies the lock as a manifest. The error is [ErrNotHeld],
// [ErrExpired], [ErrOwnerMismatch], [ErrStale] or, if there is no ttl or one that is too short for a lock
// that the operator renews, an [*InvalidError].
func Renew(current *v1alpha1.Lock, proof Proof, ttl time.Duration, now time.Time) (*v1alpha1.Lock, error) {
	if err := Release(current, proof, now); err != nil {
		return nil, err
	}
	next := current.DeepCopy()
	dropHolderOwner(next, nil)
	if !isManifest(current) {
		endFieldManagement(next)
	}
	switch {
	case ttl != 0 && ttl < v1alpha1.MinOperatorRenewalTTL && current.Spec.RenewalPolicy == v1alpha1.RenewalByOperator &&
		!current.Spec.TTL.Equal(&v1alpha1.Duration{Duration: ttl}):
		return nil, &InvalidError{Problems: tooShortForOperator(ttl)}
	case next.Spec.TTL != nil && ttl != 0:
		next.Spec.TTL.Duration = ttl
	case ttl != 0:
		next.Spec.TTL = &v1alpha1.Duration{Duration: ttl}
	case next.Spec.TTL == nil:
		return nil, &InvalidError{Problems: field.ErrorList{field.Required(field.NewPath("spec", "ttl"), withoutTTL)}}
	}
	stampRenewal(&next.Spec, now)
	if proof.NextConnection != "" {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, v1alpha1.ConnectionAnnotation, proof.NextConnection)
	}
	return next, recordToken(next, current)
}

// Release reports whether the proof permits ending the lock. Current is nil if there is no lock.
// The error is [ErrNotHeld], also for a renewed lock with a proof that IsUnrenewed and for another
// grant or connection than that of the proof, [ErrExpired], [ErrOwnerMismatch] or, if the lock is held by the proof
// but stored in another version, [ErrStale].
func Release(current *v1alpha1.Lock, proof Proof, now time.Time) error {
	switch {
	case current == nil:
		return ErrNotHeld
	case !proof.entitlesTo(current):
		if Expired(current, now) {
			return ErrNotHeld
		}
		return ErrOwnerMismatch
	case proof.isOfOtherGrant(current):
		return ErrNotHeld
	case Expired(current, now):
		return ErrExpired
	case proof.IsUnrenewed && IsRenewed(current):
		return ErrNotHeld
	case proof.ResourceVersion != "" && proof.ResourceVersion != current.ResourceVersion:
		return ErrStale
	}
	return nil
}

// ForceRelease reports whether there is a held lock to end without its owner token. Current is nil
// if there is no lock. The error is [ErrNotHeld] or, if the lock does not meet the precondition, [ErrOtherGrant].
func ForceRelease(current *v1alpha1.Lock, precondition Precondition, now time.Time) error {
	switch {
	case current == nil || Expired(current, now):
		return ErrNotHeld
	case !precondition.isMetBy(current):
		return ErrOtherGrant
	}
	return nil
}
