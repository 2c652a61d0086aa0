package rules

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
)

const (
	// MinTTL is the shortest ttl: the smallest unit that the schema of spec.ttl knows.
	MinTTL = time.Millisecond
	// MaxExpireAhead is the furthest that an absolute expireTime may lie ahead: a mistyped year must not
	// hold a lock for ever. An operator may be configured with a lower maximum.
	MaxExpireAhead = 366 * day

	day = 24 * time.Hour
)

// MaxReasonLength is the longest reason of a lock or of a forced release, in characters: the
// bound of spec.reason in the schema.
const MaxReasonLength = 1024

// specPath is made once: every acquire is validated.
var specPath = field.NewPath("spec")

func validateIdentity(scope v1alpha1.Scope, function, key string) field.ErrorList {
	var problems field.ErrorList
	if err := v1alpha1.ValidateKey(key); err != nil {
		problems = append(problems, field.Invalid(specPath.Child("key"), key, err.Error()))
	}
	switch scope {
	case v1alpha1.ScopeFunction:
		if function == "" {
			problems = append(problems, field.Required(specPath.Child("function"), "scope Function needs one"))
		} else if err := v1alpha1.ValidateKey(function); err != nil {
			problems = append(problems, field.Invalid(specPath.Child("function"), function, err.Error()))
		}
	case v1alpha1.ScopeGlobal, "":
		if function != "" {
			problems = append(problems, field.Forbidden(specPath.Child("function"), "must be empty when scope is Global"))
		}
	default:
		problems = append(problems, field.NotSupported(specPath.Child("scope"), scope, []v1alpha1.Scope{v1alpha1.ScopeGlobal, v1alpha1.ScopeFunction}))
	}
	return problems
}

// ValidateTTL reports a ttl that a lock cannot be renewed with, in an [*InvalidError]. Zero, the ttl
// that the lock has, is valid. [Renew] does not validate again.
func (l Limits) ValidateTTL(ttl time.Duration) error {
	if ttl == 0 {
		return nil
	}
	if problems := l.validateTTL(ttl); len(problems) > 0 {
		return &InvalidError{Problems: problems}
	}
	return nil
}

func (l Limits) validateTTL(ttl time.Duration) field.ErrorList {
	if ttl >= MinTTL && ttl <= l.MaxTTL {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec", "ttl"), ttl.String(),
		fmt.Sprintf("must be at least %s and at most %s", MinTTL, l.MaxTTL))}
}

// servedTTL is the shortest ttl whose grant outlives its answer unless something is wrong with the API server.
const servedTTL = 100 * time.Millisecond

// Lapsed returns the error for a grant with the ttl that expired before its caller could be told of it. It is an
// [*InvalidError] if the ttl asks for the impossible, and else nil: the API server is slow then, and the same request may succeed.
func Lapsed(ttl time.Duration) error {
	if ttl >= servedTTL {
		return nil
	}
	return &InvalidError{Problems: field.ErrorList{field.Invalid(field.NewPath("spec", "ttl"), ttl.String(),
		"is too short: the lock was granted, and had expired when this was to be answered")}}
}

// validateExpireTime checks an absolute expireTime. Previous is that of the lock before a change of its
// holder, who may always end it sooner, or nil.
func (l Limits) validateExpireTime(expire, previous *v1alpha1.Timestamp, now time.Time) field.ErrorList {
	path := field.NewPath("spec", "expireTime")
	ahead := expire.Sub(now)
	isSooner := previous != nil && !expire.After(previous.Time)
	switch {
	case ahead > 0 && (ahead <= l.MaxExpireAhead || isSooner):
		return nil
	case l.MaxExpireAhead == 0:
		return field.ErrorList{field.Forbidden(path, "lock-operator is configured to grant no fixed time; set ttl instead")}
	}
	limit := l.MaxExpireAhead.String()
	if l.MaxExpireAhead%day == 0 {
		limit = fmt.Sprintf("%d days", l.MaxExpireAhead/day)
	}
	return field.ErrorList{field.Invalid(path, expire.String(), fmt.Sprintf("must be in the future and at most %s ahead", limit))}
}
