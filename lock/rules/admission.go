package rules

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// maxExpireAhead bounds an absolute expireTime, so that a mistyped year cannot
// hold a lock for ever.
const maxExpireAhead = 366 * 24 * time.Hour

var specEquality = conversion.EqualitiesOrDie(func(a, b v1alpha1.Timestamp) bool { return a.Equal(&b) })

// AdmitCreate judges a Lock that somebody other than the operator creates and
// returns it with everything stamped that a manifest leaves out. Its owner must
// already be set. Whether the lock is free is not decided here but by etcd. The
// error is an [*InvalidError].
func AdmitCreate(lock *v1alpha1.Lock, user string, limits Limits, now time.Time) (*v1alpha1.Lock, error) {
	next := lock.DeepCopy()
	problems := validateIdentity(next.Spec.Scope, next.Spec.Function, next.Spec.Key)
	if len(problems) == 0 {
		problems = append(problems, nameAfterKey(next)...)
	}
	problems = append(problems, foreignStamps(&next.Spec, &v1alpha1.LockSpec{})...)
	problems = append(problems, admitGrant(&next.Spec, user, limits, now)...)
	if len(problems) > 0 {
		return nil, &InvalidError{Problems: problems}
	}
	return next, nil
}

// AdmitUpdate judges a change to a Lock by somebody other than the operator and
// returns the object to store. What the change leaves out of the stamped fields
// stays. A change of ttl, or of an absolute expireTime, renews the lock; a
// change of an expired lock is a take-over; a change of metadata alone leaves the
// grant as it is. That key, scope and function stay is a rule of the schema.
//
// The error is an [*InvalidError], a [*HeldError] or [ErrNotHolder].
func AdmitUpdate(old, updated *v1alpha1.Lock, user string, limits Limits, now time.Time, allowance time.Duration) (*v1alpha1.Lock, error) {
	next := updated.DeepCopy()
	keepStamps(&next.Spec, &old.Spec)
	problems := foreignStamps(&next.Spec, &old.Spec)
	if len(problems) > 0 {
		return nil, &InvalidError{Problems: problems}
	}

	switch {
	case specEquality.DeepEqual(next.Spec, old.Spec):
		return next, recordToken(next, old)
	case next.Spec.Owner != old.Spec.Owner || Expired(old, now):
		if err := Reclaim(old, now, allowance); err != nil {
			return nil, err
		}
		if next.Spec.TTL != nil && next.Spec.ExpireTime.Equal(old.Spec.ExpireTime) {
			next.Spec.ExpireTime = nil
		}
		problems = admitGrant(&next.Spec, user, limits, now)
		distinguishGrant(&next.Spec, &old.Spec)
	case user != old.Spec.Holder:
		return nil, ErrNotHolder
	default:
		problems = admitRenewal(&next.Spec, &old.Spec, limits, now)
		if err := recordToken(next, old); err != nil {
			return nil, err
		}
	}
	if len(problems) > 0 {
		return nil, &InvalidError{Problems: problems}
	}
	return next, nil
}

// nameAfterKey gives the object the name of its key, or refuses another one.
func nameAfterKey(lock *v1alpha1.Lock) field.ErrorList {
	want := lock.Spec.FullKey().ObjectName()
	if lock.Name != "" && lock.Name != want {
		return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), lock.Name,
			fmt.Sprintf("must be %q, the name that follows from the key; set it, or leave the name out and set generateName", want))}
	}
	lock.Name = want
	return nil
}

// admitGrant turns what a manifest says into a grant.
func admitGrant(spec *v1alpha1.LockSpec, user string, limits Limits, now time.Time) field.ErrorList {
	var problems field.ErrorList
	path := field.NewPath("spec")
	if err := v1alpha1.ValidateOwner(spec.Owner); err != nil {
		problems = append(problems, field.Invalid(path.Child("owner"), field.OmitValueType{}, err.Error()))
	}
	switch {
	case spec.TTL != nil && spec.ExpireTime != nil:
		problems = append(problems, field.Forbidden(path.Child("expireTime"), "follows from ttl; set one of the two"))
	case spec.TTL != nil:
		problems = append(problems, limits.validateTTL(spec.TTL.Duration)...)
	case spec.ExpireTime != nil:
		problems = append(problems, validateExpireTime(spec.ExpireTime, now)...)
	default:
		spec.TTL = &metav1.Duration{Duration: limits.DefaultTTL}
	}
	stampGrant(spec, user, now)
	return problems
}

// admitRenewal renews the lock if the holder changed how long it lives.
func admitRenewal(next, old *v1alpha1.LockSpec, limits Limits, now time.Time) field.ErrorList {
	expireChanged := !next.ExpireTime.Equal(old.ExpireTime)
	ttlChanged := next.TTL != nil && (old.TTL == nil || next.TTL.Duration != old.TTL.Duration)
	switch {
	case expireChanged && next.TTL != nil:
		return field.ErrorList{field.Forbidden(field.NewPath("spec", "expireTime"), "follows from ttl; change ttl, or remove it to set an absolute expireTime")}
	case expireChanged:
		next.RenewTime = after(v1alpha1.NewTimestamp(now), 0)
		return validateExpireTime(next.ExpireTime, now)
	case ttlChanged:
		stampRenewal(next, now)
		return limits.validateTTL(next.TTL.Duration)
	}
	return nil
}

// keepStamps fills in what a manifest does not repeat.
func keepStamps(next, old *v1alpha1.LockSpec) {
	if next.Owner == "" {
		next.Owner = old.Owner
	}
	if next.Holder == "" {
		next.Holder = old.Holder
	}
	if next.AcquireTime == nil {
		next.AcquireTime = old.AcquireTime.DeepCopy()
	}
	if next.RenewTime == nil {
		next.RenewTime = old.RenewTime.DeepCopy()
	}
	if next.ExpireTime == nil {
		next.ExpireTime = old.ExpireTime.DeepCopy()
	}
	if next.TTL == nil && next.ExpireTime.Equal(old.ExpireTime) && old.TTL != nil {
		ttl := *old.TTL
		next.TTL = &ttl
	}
	if next.FencingToken == nil && old.FencingToken != nil {
		token := *old.FencingToken
		next.FencingToken = &token
	}
}

// foreignStamps reports the stamped fields that differ from those in force.
func foreignStamps(next, old *v1alpha1.LockSpec) field.ErrorList {
	var problems field.ErrorList
	refuse := func(name string) {
		problems = append(problems, field.Forbidden(field.NewPath("spec", name), "is stamped by the service; leave it out"))
	}
	if next.Holder != old.Holder {
		refuse("holder")
	}
	if !next.AcquireTime.Equal(old.AcquireTime) {
		refuse("acquireTime")
	}
	if !next.RenewTime.Equal(old.RenewTime) {
		refuse("renewTime")
	}
	if !specEquality.DeepEqual(next.FencingToken, old.FencingToken) {
		refuse("fencingToken")
	}
	return problems
}

func validateExpireTime(expire *v1alpha1.Timestamp, now time.Time) field.ErrorList {
	ahead := expire.Sub(now)
	if ahead > 0 && ahead <= maxExpireAhead {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec", "expireTime"), expire.String(),
		fmt.Sprintf("must be in the future and at most %d days ahead", maxExpireAhead/(24*time.Hour)))}
}
