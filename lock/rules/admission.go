package rules

import (
	"fmt"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
)

var equality = func() conversion.Equalities {
	equality := apiequality.Semantic.Copy()
	if err := equality.AddFuncs(
		func(a, b v1alpha1.Timestamp) bool { return a.Equal(&b) },
		func(a, b v1alpha1.Duration) bool { return a.Equal(&b) },
	); err != nil {
		panic(err)
	}
	return equality
}()

// AdmitCreate checks a Lock that a user other than the operator creates and returns it with all
// stamps, and the object that it names, whose existence is yet to be checked, or nil. Its owner must
// be set already. It does not check whether the lock is free; etcd does. The error is an
// [*InvalidError].
func AdmitCreate(lock *v1alpha1.Lock, user User, limits Limits, now time.Time) (admitted *v1alpha1.Lock, holder *ValidReference, err error) {
	next := lock.DeepCopy()
	dropAnnotation(next, v1alpha1.ForceReleaseReasonAnnotation)
	problems := validateIdentity(next.Spec.Scope, next.Spec.Function, next.Spec.Key)
	if len(problems) == 0 {
		problems = append(problems, setName(next)...)
	}
	problems = append(problems, foreignStamps(&next.Spec, &v1alpha1.LockSpec{})...)
	problems = append(problems, newFinalizers(next, &v1alpha1.Lock{})...)
	problems = append(problems, admitUnrequested(next)...)
	problems = append(problems, admitGrant(&next.Spec, user, limits, now)...)
	if len(problems) > 0 {
		return nil, nil, &InvalidError{Problems: problems}
	}
	dropHolderOwner(next, nil)
	return next, validated(next.Spec.HolderRef), nil
}

// Change is a change to a Lock by a user other than the operator.
type Change struct {
	// Old is the stored object, Updated the new one.
	Old, Updated *v1alpha1.Lock
	// IsUnchanged says that the change changes nothing; see [IsUnchanged].
	IsUnchanged bool
	// IsTrial says that the request is a dry run that changes nothing but who manages which field; see
	// [IsUnchangedExceptManagers]. Its answer, which tools compare with the stored lock, shows no stamp
	// that only a write needs.
	IsTrial bool
	// FieldManager is what the request names, as a server-side apply always does. Empty if it names
	// none.
	FieldManager string
	// User is the authenticated identity of the client.
	User User
}

// AdmitUpdate checks a change and returns the object to store, and the object that it newly names as
// the holder, whose existence is yet to be checked, or nil. Stamped fields that the change leaves out
// keep their values. What the schema would refuse is left to [Change.ValidateStored].
//
//   - The holder may change spec and metadata. A change of ttl, or of an absolute
//     expireTime, renews the lock. Guards stay as they are until the next grant.
//   - Other users may change metadata that has no effect on the lock. They may not claim a
//     held lock, not even by applying a manifest that changes nothing else.
//   - Once the lock has expired, a change of spec, an applied manifest, or a new
//     [v1alpha1.AcquisitionAnnotation] is a take-over. Callers may share an owner token;
//     a take-over may therefore change nothing else.
//   - Only the holder may set a [v1alpha1.RequestAnnotation], while it holds the lock.
//   - Whether the user may give a reason for a forced release is not decided here; see
//     [Change.NeedsForce].
//
// The error is an [*InvalidError], a [*HeldError], [ErrStale] or [ErrExpired].
func AdmitUpdate(change Change, limits Limits, now time.Time, allowance time.Duration) (admitted *v1alpha1.Lock, holder *ValidReference, err error) {
	admitted, err = admitUpdate(change, limits, now, allowance)
	if err != nil {
		return nil, nil, err
	}
	return admitted, newHolder(admitted, change.Old), nil
}

func admitUpdate(change Change, limits Limits, now time.Time, allowance time.Duration) (*v1alpha1.Lock, error) {
	old, next := change.Old, change.Updated.DeepCopy()
	// Before the stamps: those of a stale object were in force when it was read.
	if err := change.validateVersion(); err != nil {
		return nil, err
	}
	keepStamps(&next.Spec, &old.Spec)
	requested := takeRequest(next)
	if change.User.Holds(old) {
		keepForceReason(next, old)
	}
	problems := append(foreignStamps(&next.Spec, &old.Spec), newFinalizers(next, old)...)
	problems = append(problems, validateForceReason(next, old)...)
	if len(problems) > 0 {
		return nil, &InvalidError{Problems: problems}
	}

	if requested != "" {
		return admitRequest(requested, next, old, change.User, limits, now)
	}
	return admitChange(next, change, limits, now, allowance)
}

// admitChange checks a change without a request annotation.
func admitChange(next *v1alpha1.Lock, change Change, limits Limits, now time.Time, allowance time.Duration) (*v1alpha1.Lock, error) {
	old := change.Old
	isHolder := change.User.Holds(old)
	isForeignApply := change.isForeignApply(next)
	isClaim := isForeignApply || change.asksForLock(next)
	isAcquisitionChanged := next.Annotations[v1alpha1.AcquisitionAnnotation] != old.Annotations[v1alpha1.AcquisitionAnnotation]
	switch {
	case Expired(old, now) && (isClaim || change.IsUnchanged && isHolder):
		return admitTakeOver(next, old, change.User, limits, now, allowance)
	case change.IsUnchanged && !isForeignApply:
		return admitUnchanged(next, change)
	case (isClaim || isAcquisitionChanged) && !isHolder, next.Spec.Owner != old.Spec.Owner, isNewAcquisition(next, old):
		return nil, HeldBy(old)
	}
	problems := change.validate(next, limits, now)
	if len(problems) > 0 {
		return nil, &InvalidError{Problems: problems}
	}
	if change.IsTrial {
		return next, nil
	}
	return next, recordToken(next, old)
}

// validate reports what the user may not change of a lock that stays with its holder.
func (c Change) validate(next *v1alpha1.Lock, limits Limits, now time.Time) field.ErrorList {
	problems := append(admitRenewal(&next.Spec, &c.Old.Spec, limits, now), guardsChanged(next, c.Old)...)
	problems = append(problems, limits.changeRenewalPolicy(&next.Spec, &c.Old.Spec, now)...)
	switch {
	case c.User.Holds(c.Old):
		problems = append(problems, holderChanged(next, c.Old)...)
	case !slices.Contains(garbageCollectors, c.User.Name):
		problems = append(problems, foreignOwners(next, c.Old)...)
	}
	return problems
}

// asksForLock reports whether the change shows that its user wants to hold the lock.
func (c Change) asksForLock(next *v1alpha1.Lock) bool {
	return !equality.DeepEqual(next.Spec, c.Old.Spec) || isApplied(c.Updated, c.Old) || isNewAcquisition(next, c.Old) ||
		claimsRelease(next, c.Old)
}

// admitUnchanged checks a change that changes nothing. The API server does not write it unless the
// stored form is stale, as after a change of the schema. It does not say, and the write would change
// the resourceVersion, so the token is recorded; but not in a manifest that its holder applies again,
// since a GitOps tool does that for ever and must see no difference.
func admitUnchanged(next *v1alpha1.Lock, change Change) (*v1alpha1.Lock, error) {
	if change.IsTrial || change.User.Holds(change.Old) && appliesFields(next, change.FieldManager) {
		return next, nil
	}
	return next, recordToken(next, change.Old)
}

// admitTakeOver turns next into a grant to the user, and drops fields of the former holder that
// would affect the lock of the next one.
func admitTakeOver(next, old *v1alpha1.Lock, user User, limits Limits, now time.Time, allowance time.Duration) (*v1alpha1.Lock, error) {
	if err := reclaimInPlace(old, now, allowance); err != nil {
		return nil, err
	}
	problems := validateIdentity(next.Spec.Scope, next.Spec.Function, next.Spec.Key)
	if next.Spec.Owner == old.Spec.Owner && !user.Holds(old) {
		// The former holder knows the owner token and could release the lock with it.
		problems = append(problems, field.Forbidden(field.NewPath("spec", "owner"),
			"is the token of the former holder, whose lock has expired; set another one to take the lock over"))
	}
	problems = append(problems, admitNextHolder(next, old, user, limits, now)...)
	if len(problems) > 0 {
		return nil, &InvalidError{Problems: problems}
	}
	return next, nil
}

// admitNextHolder turns next into a grant to the user, the next holder after that of old.
func admitNextHolder(next, old *v1alpha1.Lock, user User, limits Limits, now time.Time) field.ErrorList {
	if next.Spec.TTL != nil && next.Spec.ExpireTime.Equal(old.Spec.ExpireTime) {
		next.Spec.ExpireTime = nil
	}
	// Several holders may share one account, such as the pods of a service account.
	if !user.Holds(old) || next.Spec.Owner != old.Spec.Owner {
		dropFormerHolder(next, old)
	}
	dropAnnotation(next, v1alpha1.ForceReleaseReasonAnnotation)
	problems := admitGrant(&next.Spec, user, limits, now)
	distinguishGrant(&next.Spec, &old.Spec)
	dropHolderOwner(next, old.Spec.HolderRef)
	return problems
}

// setName sets the name that follows from the key, or refuses another one.
func setName(lock *v1alpha1.Lock) field.ErrorList {
	want := lock.Spec.FullKey().ObjectName()
	if lock.Name != "" && lock.Name != want {
		return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), lock.Name,
			fmt.Sprintf("must be %q, the name that follows from the key; kubectl create takes any generateName in its place", want))}
	}
	lock.Name = want
	return nil
}

// admitGrant turns a manifest into a grant.
func admitGrant(spec *v1alpha1.LockSpec, user User, limits Limits, now time.Time) field.ErrorList {
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
		problems = append(problems, limits.validateExpireTime(spec.ExpireTime, nil, now)...)
	default:
		spec.TTL = &v1alpha1.Duration{Duration: limits.DefaultTTL}
	}
	problems = append(problems, limits.beginRenewalPolicy(spec, now, now)...)
	problems = append(problems, validateHolder(spec)...)
	problems = append(problems, validateGuards(spec.Guards)...)
	stampGrant(spec, user, now)
	return problems
}

// admitRenewal renews the lock if the holder changed its ttl or expireTime.
func admitRenewal(next, old *v1alpha1.LockSpec, limits Limits, now time.Time) field.ErrorList {
	expireChanged := !next.ExpireTime.Equal(old.ExpireTime)
	ttlChanged := next.TTL != nil && (old.TTL == nil || next.TTL.Duration != old.TTL.Duration)
	switch {
	case expireChanged && next.TTL != nil:
		return field.ErrorList{field.Forbidden(field.NewPath("spec", "expireTime"), "follows from ttl; change ttl, or remove it to set an absolute expireTime")}
	case expireChanged:
		next.RenewTime = after(v1alpha1.NewTimestamp(now), 0)
		return limits.validateExpireTime(next.ExpireTime, old.ExpireTime, now)
	case ttlChanged:
		stampRenewal(next, now)
		return limits.validateTTL(next.TTL.Duration)
	}
	return nil
}
