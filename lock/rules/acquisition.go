package rules

import (
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Acquisition is a request for a lock.
type Acquisition struct {
	// Scope, Function and Key identify the lock; see [v1alpha1.LockSpec]. An empty Scope means
	// [v1alpha1.ScopeGlobal].
	Scope    v1alpha1.Scope
	Function string
	Key      string
	// Owner is the owner token. Empty means a new UUID v4.
	Owner string
	// ID tells the acquisition from others of the same owner. The lock carries it as its
	// [v1alpha1.AcquisitionAnnotation]. Optional; a UUID if it is set.
	ID string
	// TTL is how long the lock lives. Zero means the default of [Limits].
	TTL time.Duration
	// Holder is the authenticated identity of the caller. Required.
	Holder string
	// HolderUID is the UID of that identity, see [User]. Optional.
	HolderUID string
	// Reason says why the lock is held, for people. Optional.
	Reason string
	// HolderRef names the object that the lock is held for, in the namespace of the lock. The lock
	// ends with it. Package rules does not check that it exists. Optional.
	HolderRef *v1alpha1.HolderReference
	// ReleaseDelay is how long the lock stays after that object has ended. At most
	// [v1alpha1.MaxReleaseDelay]; zero means no delay.
	ReleaseDelay time.Duration
	// Connection identifies the connection of the caller that holds the lock. The lock carries it as its
	// [v1alpha1.ConnectionAnnotation]. Empty if none does; else a UUID.
	Connection string
}

// FullKey returns the full key of the requested lock.
func (a *Acquisition) FullKey() v1alpha1.FullKey {
	return v1alpha1.NewFullKey(a.Scope, a.Function, a.Key)
}

// Limits bounds what an [Acquisition] or a manifest may ask for.
type Limits struct {
	// DefaultTTL is the ttl of requests without one. More than zero, at most MaxTTL.
	DefaultTTL time.Duration
	// MaxTTL is the longest ttl that is granted; a longer one is refused, never
	// shortened. At most [v1alpha1.MaxTTL].
	MaxTTL time.Duration
	// MaxExpireAhead is how far the absolute expireTime of a manifest may lie ahead; a later one is
	// refused. At most [MaxExpireAhead]; zero means that no absolute expireTime is granted. A holder may
	// end its lock sooner in any case.
	MaxExpireAhead time.Duration
	// MaxOperatorRenewal is for how long the operator renews a lock with the renewalPolicy Operator, as
	// the namespace of the lock sets it. Zero means that no such lock is granted.
	MaxOperatorRenewal time.Duration
}

// DefaultLimits are the limits unless the operator is configured otherwise: a default of five
// minutes, a maximum of 24 hours, and an absolute expireTime at most 366 days ahead.
func DefaultLimits() Limits {
	return Limits{DefaultTTL: 5 * time.Minute, MaxTTL: v1alpha1.MaxTTL, MaxExpireAhead: MaxExpireAhead}
}

// Validate reports every field of the request that breaks a rule of the Lock type or exceeds the
// limits, in an [*InvalidError]. An empty Owner is valid: Acquire sets one. [Grant], [TakeOver]
// and [HandOff] do not validate again. Holder is the object that a valid request names, or nil.
func (a *Acquisition) Validate(limits Limits) (holder *ValidReference, err error) {
	problems := validateIdentity(a.Scope, a.Function, a.Key)
	if a.Owner != "" {
		if err := v1alpha1.ValidateOwner(a.Owner); err != nil {
			problems = append(problems, field.Invalid(specPath.Child("owner"), field.OmitValueType{}, err.Error()))
		}
	}
	if a.TTL != 0 {
		problems = append(problems, limits.validateTTL(a.TTL)...)
	}
	if a.Holder == "" {
		problems = append(problems, field.Required(specPath.Child("holder"), "a lock needs a holder"))
	}
	problems = append(problems, validateHolder(&v1alpha1.LockSpec{HolderRef: a.HolderRef, ReleaseDelay: a.releaseDelay()})...)
	if utf8.RuneCountInString(a.Reason) > MaxReasonLength {
		problems = append(problems, field.TooLong(specPath.Child("reason"), field.OmitValueType{}, MaxReasonLength))
	}
	if len(problems) == 0 {
		problems = a.validateSpecSize(limits)
	}
	if len(problems) > 0 {
		return nil, &InvalidError{Problems: problems}
	}
	return validated(a.HolderRef), nil
}

func (a *Acquisition) releaseDelay() *v1alpha1.Duration {
	if a.ReleaseDelay == 0 {
		return nil
	}
	return &v1alpha1.Duration{Duration: a.ReleaseDelay}
}

func (a *Acquisition) spec(limits Limits) v1alpha1.LockSpec {
	spec := v1alpha1.LockSpec{
		Key:    v1alpha1.NormalizeKey(a.Key),
		Scope:  a.Scope,
		Owner:  a.Owner,
		TTL:    &v1alpha1.Duration{Duration: a.TTL},
		Reason: a.Reason,

		HolderRef:    a.HolderRef.DeepCopy(),
		ReleaseDelay: a.releaseDelay(),
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
