package rules

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
// have the lock of the next one deleted. The error is a [*HeldError] or an
// [*InvalidError].
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
