package rules

import (
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Acquisition is a request for a lock.
type Acquisition struct {
	// Scope, Function and Key say what to lock; see [v1alpha1.LockSpec]. An empty
	// Scope means [v1alpha1.ScopeGlobal].
	Scope    v1alpha1.Scope
	Function string
	Key      string
	// Owner is the token that will prove the acquisition. Empty means a new UUID v4.
	Owner string
	// TTL is how long the lock is to live. Zero means the default of [Limits].
	TTL time.Duration
	// Holder is the authenticated identity of the caller. Required.
	Holder string
	// Reason tells people why the lock is held. Optional.
	Reason string
}

// FullKey returns what the acquisition contends for.
func (a *Acquisition) FullKey() v1alpha1.FullKey {
	return v1alpha1.NewFullKey(a.Scope, a.Function, a.Key)
}

// Limits bounds what an [Acquisition] may ask for.
type Limits struct {
	// DefaultTTL is used where a request names no ttl. More than zero, at most MaxTTL.
	DefaultTTL time.Duration
	// MaxTTL is the longest ttl that is granted; a longer one is refused, never
	// shortened. At most [v1alpha1.MaxTTL].
	MaxTTL time.Duration
}

// DefaultLimits are in force unless the operator is configured otherwise: five
// minutes unless asked for, 24 hours at most.
func DefaultLimits() Limits {
	return Limits{DefaultTTL: 5 * time.Minute, MaxTTL: v1alpha1.MaxTTL}
}
