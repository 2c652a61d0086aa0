package facade

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// Anonymous is the holder of locks whose callers are not authenticated: the name that
// Kubernetes gives them.
const Anonymous = "system:anonymous"

// Locks acquires and releases locks, in practice a lock.Engine. Errors are those of
// package lock; anything else is reported to callers as an internal error. It must be
// safe for concurrent use.
type Locks interface {
	// Acquire takes the lock or returns lock.ErrHeld, lock.ErrInvalid, lock.ErrExpired
	// or lock.ErrUnavailable. If ctx ends first, the lock is not held on its behalf.
	Acquire(ctx context.Context, namespace string, request rules.Acquisition) (*v1alpha1.Lock, error)
	// Release bounds the time that it takes by itself: at the end of a call ctx has no
	// end. It returns lock.ErrNotHeld, lock.ErrOwnerMismatch or lock.ErrUnavailable.
	Release(ctx context.Context, namespace string, key v1alpha1.FullKey, owner string) error
	// ForceRelease returns lock.ErrNotHeld or lock.ErrUnavailable.
	ForceRelease(ctx context.Context, namespace string, key v1alpha1.FullKey) error
	// Get returns the live lock, lock.ErrNotHeld if it is free or has expired, or
	// lock.ErrUnavailable.
	Get(ctx context.Context, namespace string, key v1alpha1.FullKey) (*v1alpha1.Lock, error)
}

// Config configures a [Handler].
type Config struct {
	// Locks are the locks that are served. Required.
	Locks Locks
	// Namespace is where the locks are. Required.
	Namespace string
	// Limits bounds what callers may ask for. Required.
	Limits rules.Limits
	// Functions are served besides the system functions, under names of their own.
	Functions []Function

	// Holder returns the authenticated identity of the caller. Nil means [Anonymous]
	// for everyone.
	Holder func(*http.Request) string
	// Ready says why locks cannot be served at the moment, for /readyz. Nil means
	// that they always can.
	Ready func(context.Context) error

	// Service is the name of the service in its capabilities. Empty means
	// "lock-operator".
	Service string
	// Version is the version of the service in its capabilities. Empty leaves it out.
	Version string
	// Node names the replica in responses. Empty leaves it out.
	Node string

	// Clock tells the time. Nil means the real clock.
	Clock clock.PassiveClock
	// Logger gets what callers are not told: the causes of internal errors, and what
	// goes wrong when a lock is released after its call. Zero discards.
	Logger logr.Logger
}

func (c *Config) validate() error {
	switch {
	case c.Locks == nil:
		return errors.New("facade: Locks is required")
	case c.Namespace == "":
		return errors.New("facade: Namespace is required")
	case c.Limits.MaxTTL <= 0:
		return errors.New("facade: the maximum ttl must be more than zero")
	}
	return nil
}

func (c *Config) setDefaults() {
	if c.Holder == nil {
		c.Holder = func(*http.Request) string { return Anonymous }
	}
	if c.Ready == nil {
		c.Ready = func(context.Context) error { return nil }
	}
	if c.Service == "" {
		c.Service = "lock-operator"
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
}
