package locktest

import (
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/lock/rules"
)

// DefaultHolder holds the locks of requests that do not name a holder.
const DefaultHolder = "locktest"

// Option configures a [Backend].
type Option func(*Backend)

// WithClock sets the clock that stamps locks, ends them, and measures waits. Nil means
// the real clock, which is the default.
func WithClock(source clock.WithTicker) Option {
	return func(b *Backend) {
		if source == nil {
			source = clock.RealClock{}
		}
		b.clock = source
	}
}

// WithLimits sets the bounds of the ttl; the default is [rules.DefaultLimits].
func WithLimits(limits rules.Limits) Option {
	return func(b *Backend) { b.limits = limits }
}

// WithOwner sets the owner token of requests that name none, instead of a new UUID v4 for
// each.
func WithOwner(owner string) Option {
	return func(b *Backend) { b.owner = owner }
}

// WithHolder sets the identity that acquires where a request names none, instead of
// [DefaultHolder].
func WithHolder(holder string) Option {
	return func(b *Backend) { b.holder = holder }
}
