package forrst

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// Anonymous is the holder of locks whose callers are not authenticated: the name that
// Kubernetes gives them.
const Anonymous = "system:anonymous"

// DefaultMaxBlock is how long a call may wait for a lock unless configured otherwise.
const DefaultMaxBlock = time.Minute

// Locks carries out what calls ask for: what the façade needs of [lock.Engine], with the
// same contract. Errors that are not of package lock are reported to callers as
// internal errors.
type Locks interface {
	Acquire(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error)
	Renew(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof, ttl time.Duration) (*v1alpha1.Lock, error)
	// Release bounds the time that it takes by itself: at the end of a call ctx has no
	// end.
	Release(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof) error
	ForceRelease(ctx context.Context, namespace string, key v1alpha1.FullKey, reason string) error
	Get(ctx context.Context, namespace string, key v1alpha1.FullKey) (*v1alpha1.Lock, error)
	List(ctx context.Context, namespace string, filter lock.Filter) ([]v1alpha1.Lock, error)
}

// Config configures a [Handler].
type Config struct {
	// Locks are the locks that are served. Required.
	Locks Locks
	// Namespace is where the locks are if Access is nil, and required then. Otherwise each
	// call is about a namespace of its own.
	Namespace string
	// Limits bounds what callers may ask for. Required.
	Limits rules.Limits
	// MaxBlock is the longest that a call may wait for a lock; who wants to wait longer
	// calls again. Zero means [DefaultMaxBlock].
	MaxBlock time.Duration
	// Components tell what health is made of, each time that it is asked for. They have
	// names of their own.
	Components []ComponentSource
	// CallLimits bounds how many calls are served at a time.
	CallLimits CallLimits
	// Routing finds and calls functions that are served elsewhere. Nil means that there are
	// none.
	Routing *Routing

	// Holders looks for the objects that callers name. Nil means that they may name none.
	Holders HolderChecker
	// Access tells who calls and what they may do. Nil means that everyone is [Anonymous]
	// and may do everything in Namespace.
	Access Access
	// Ready says why locks cannot be served at the moment, for /readyz. Nil means
	// that they always can.
	Ready func(context.Context) error

	// Version is the version of the service in its capabilities. Empty leaves it out.
	Version string
	// Node names the replica in responses. Empty leaves it out.
	Node string

	// Metrics is where the metrics of the façade are registered. Nil means nowhere.
	Metrics prometheus.Registerer
	// Clock tells the time. Nil means the real clock.
	Clock clock.WithTicker
	// Logger gets what callers are not told: the causes of internal errors, and what
	// goes wrong when a lock is released after its call. Zero discards.
	Logger logr.Logger
}

func (c *Config) validate() error {
	switch {
	case c.Locks == nil:
		return errors.New("facade: Locks is required")
	case c.Namespace == "" && c.Access == nil:
		return errors.New("facade: Namespace or Access is required")
	case c.Limits.MaxTTL <= 0:
		return errors.New("facade: the maximum ttl must be more than zero")
	case c.Routing != nil && (c.Routing.Routes == nil || c.Routing.Client == nil):
		return errors.New("facade: Routing needs Routes and a Client")
	case c.MaxBlock < 0:
		return errors.New("facade: the maximum block must not be negative")
	}
	return c.CallLimits.validate()
}

func (c *Config) setDefaults() {
	if c.Ready == nil {
		c.Ready = func(context.Context) error { return nil }
	}
	if c.MaxBlock == 0 {
		c.MaxBlock = DefaultMaxBlock
	}
	c.CallLimits.setDefaults()
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
}
