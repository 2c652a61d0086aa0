package rules

import (
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Grant returns the object whose creation acquires a free lock. The owner must be
// set. The error is an [*InvalidError].
func Grant(namespace string, request Acquisition, limits Limits, now time.Time) (*v1alpha1.Lock, error) {
	if problems := request.validate(limits); len(problems) > 0 {
		return nil, &InvalidError{Problems: problems}
	}
	spec := request.spec(limits)
	stampGrant(&spec, request.Holder, now)
	return &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: spec.FullKey().ObjectName()},
		Spec:       spec,
	}, nil
}

// TakeOver returns the object whose conditional update replaces an expired
// holder. The object keeps its identity and loses all other metadata: owner
// references and the labels of a GitOps tool belong to the former holder, and would
// have the lock of the next one deleted. The error is a
// [*HeldError] or an [*InvalidError].
func TakeOver(current *v1alpha1.Lock, request Acquisition, limits Limits, now time.Time, allowance time.Duration) (*v1alpha1.Lock, error) {
	if err := Reclaim(current, now, allowance); err != nil {
		return nil, err
	}
	granted, err := Grant(current.Namespace, request, limits, now)
	if err != nil {
		return nil, err
	}
	next := granted
	next.Name, next.UID, next.ResourceVersion = current.Name, current.UID, current.ResourceVersion
	// Key, scope and function are immutable, but the same full key may have been
	// spelt in other parts or in another normal form.
	next.Spec.Key, next.Spec.Scope, next.Spec.Function = current.Spec.Key, current.Spec.Scope, current.Spec.Function
	distinguishGrant(&next.Spec, &current.Spec)
	return next, nil
}

// Release reports whether whoever shows the owner token may end the lock. A lock
// that is not there is nil. The error is [ErrNotHeld], [ErrExpired] or
// [ErrOwnerMismatch].
func Release(current *v1alpha1.Lock, owner string, now time.Time) error {
	switch {
	case current == nil:
		return ErrNotHeld
	case current.Spec.Owner != owner:
		if Expired(current, now) {
			return ErrNotHeld
		}
		return ErrOwnerMismatch
	case Expired(current, now):
		return ErrExpired
	}
	return nil
}

// ForceRelease reports whether there is a lock to end without its owner token. A
// lock that is not there is nil. The error is [ErrNotHeld].
func ForceRelease(current *v1alpha1.Lock, now time.Time) error {
	if current == nil || Expired(current, now) {
		return ErrNotHeld
	}
	return nil
}

// stampGrant makes spec a grant at the given time. A spec without ttl keeps its
// absolute expireTime.
func stampGrant(spec *v1alpha1.LockSpec, holder string, now time.Time) {
	at := v1alpha1.NewTimestamp(now)
	spec.Holder = holder
	spec.AcquireTime = &at
	spec.RenewTime = at.DeepCopy()
	spec.FencingToken = nil
	if spec.TTL != nil {
		spec.ExpireTime = after(at, spec.TTL.Duration)
	}
}

// stampRenewal replaces the remaining time by a whole ttl; it never adds to it.
func stampRenewal(spec *v1alpha1.LockSpec, now time.Time) {
	at := v1alpha1.NewTimestamp(now)
	spec.RenewTime = &at
	spec.ExpireTime = after(at, spec.TTL.Duration)
}

// recordToken writes down the token of the grant before a write that is not a
// grant moves the resourceVersion. It is exact because the write goes through
// only if the resourceVersion of current is still in force.
func recordToken(next, current *v1alpha1.Lock) error {
	if !current.DeletionTimestamp.IsZero() && current.Spec.FencingToken == nil {
		// The delete has moved the resourceVersion already, unseen by admission.
		return nil
	}
	token, err := current.FencingToken()
	if err != nil {
		return err
	}
	next.Spec.FencingToken = &token
	return nil
}

// distinguishGrant gives next another acquireTime than previous, whatever the
// clocks say: that they differ is how a grant is told from a renewal.
func distinguishGrant(next, previous *v1alpha1.LockSpec) {
	if next.AcquireTime.Equal(previous.AcquireTime) {
		next.AcquireTime = after(*next.AcquireTime, time.Microsecond)
		next.RenewTime = next.AcquireTime.DeepCopy()
	}
}

// after rounds up to the next microsecond, so that a positive d always moves on.
func after(t v1alpha1.Timestamp, d time.Duration) *v1alpha1.Timestamp {
	later := v1alpha1.NewTimestamp(t.Add(d + time.Microsecond - time.Nanosecond))
	return &later
}

// validate reports every field of the request that breaks a rule of the Lock type.
func (a *Acquisition) validate(limits Limits) field.ErrorList {
	spec := field.NewPath("spec")
	problems := validateIdentity(a.Scope, a.Function, a.Key)
	if err := v1alpha1.ValidateOwner(a.Owner); err != nil {
		problems = append(problems, field.Invalid(spec.Child("owner"), field.OmitValueType{}, err.Error()))
	}
	if a.TTL != 0 {
		problems = append(problems, limits.validateTTL(a.TTL)...)
	}
	if a.Holder == "" {
		problems = append(problems, field.Required(spec.Child("holder"), "a lock is held by somebody"))
	}
	if utf8.RuneCountInString(a.Reason) > maxReasonLength {
		problems = append(problems, field.TooLong(spec.Child("reason"), field.OmitValueType{}, maxReasonLength))
	}
	return problems
}

func (a *Acquisition) spec(limits Limits) v1alpha1.LockSpec {
	spec := v1alpha1.LockSpec{
		Key:    v1alpha1.NormalizeKey(a.Key),
		Scope:  a.Scope,
		Owner:  a.Owner,
		TTL:    &metav1.Duration{Duration: a.TTL},
		Reason: a.Reason,
	}
	if spec.Scope == "" {
		spec.Scope = v1alpha1.ScopeGlobal
	}
	if spec.Scope == v1alpha1.ScopeFunction {
		spec.Function = v1alpha1.NormalizeKey(a.Function)
	}
	if a.TTL == 0 {
		spec.TTL.Duration = limits.DefaultTTL
	}
	return spec
}
