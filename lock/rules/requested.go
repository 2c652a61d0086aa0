package rules

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
)

var requestPath = field.NewPath("metadata", "annotations").Key(v1alpha1.RequestAnnotation)

// takeRequest removes and returns the request annotation of an update.
func takeRequest(next *v1alpha1.Lock) string {
	requested, ok := next.Annotations[v1alpha1.RequestAnnotation]
	if !ok {
		return ""
	}
	dropAnnotation(next, v1alpha1.RequestAnnotation)
	if requested == "" {
		return "nothing"
	}
	return requested
}

// admitRequest checks an update with a [v1alpha1.RequestAnnotation]. An expired lock is neither
// renewed nor handed off.
func admitRequest(requested string, next, old *v1alpha1.Lock, user User, limits Limits, now time.Time) (*v1alpha1.Lock, error) {
	isSameOwner := next.Spec.Owner == old.Spec.Owner
	switch {
	case requested != v1alpha1.RequestRenewal && requested != v1alpha1.RequestHandOff:
		return nil, &InvalidError{Problems: field.ErrorList{field.NotSupported(requestPath, requested,
			[]string{v1alpha1.RequestRenewal, v1alpha1.RequestHandOff})}}
	case Expired(old, now):
		return nil, ErrExpired
	case !user.Holds(old), requested == v1alpha1.RequestRenewal && !isSameOwner:
		return nil, HeldBy(old)
	case requested == v1alpha1.RequestRenewal:
		return admitRequestedRenewal(next, old, limits, now)
	case isSameOwner && !isNewAcquisition(next, old):
		return nil, &InvalidError{Problems: field.ErrorList{field.Forbidden(requestPath,
			fmt.Sprintf("%s: set spec.owner to the token of the next owner", requested))}}
	}
	if problems := admitNextHolder(next, old, user, limits, now); len(problems) > 0 {
		return nil, &InvalidError{Problems: problems}
	}
	return next, nil
}

// isNewAcquisition reports whether a client asks for a new grant, perhaps under the same owner
// token.
func isNewAcquisition(next, old *v1alpha1.Lock) bool {
	id := next.Annotations[v1alpha1.AcquisitionAnnotation]
	return id != "" && id != old.Annotations[v1alpha1.AcquisitionAnnotation]
}

func admitRequestedRenewal(next, old *v1alpha1.Lock, limits Limits, now time.Time) (*v1alpha1.Lock, error) {
	var problems field.ErrorList
	spec := field.NewPath("spec")
	if next.Spec.RenewalPolicy == "" {
		next.Spec.RenewalPolicy = old.Spec.RenewalPolicy // Clients of earlier versions write the whole lock without it.
	}
	switch {
	case !next.Spec.ExpireTime.Equal(old.Spec.ExpireTime):
		problems = append(problems, field.Forbidden(spec.Child("expireTime"), "follows from ttl when a lock is renewed; leave it out"))
	case next.Spec.TTL == nil:
		problems = append(problems, field.Required(spec.Child("ttl"), withoutTTL))
	default:
		problems = limits.validateTTL(next.Spec.TTL.Duration)
	}
	problems = append(problems, limits.changeRenewalPolicy(&next.Spec, &old.Spec, now)...)
	problems = append(problems, holderChanged(next, old)...)
	problems = append(problems, guardsChanged(next, old)...)
	if len(problems) > 0 {
		return nil, &InvalidError{Problems: problems}
	}
	stampRenewal(&next.Spec, now)
	return next, recordToken(next, old)
}

// admitUnrequested refuses a request annotation on a new lock.
func admitUnrequested(lock *v1alpha1.Lock) field.ErrorList {
	if _, ok := lock.Annotations[v1alpha1.RequestAnnotation]; !ok {
		return nil
	}
	return field.ErrorList{field.Forbidden(requestPath, "asks for a transition of a lock that exists; remove it from a new one")}
}
