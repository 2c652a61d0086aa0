package locktest

import (
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/lock/rules"
)

// DefaultHolder is the holder of requests that name none.
const DefaultHolder = "locktest"

// Option configures a [Backend].
type Option func(*Backend)

// WithClock sets the clock for stamps, expiry and waits. Nil, and the default, is the real clock.
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

// WithOwner sets the owner token of requests without one. The default is a new UUID v4 for each.
func WithOwner(owner string) Option {
	return func(b *Backend) { b.owner = owner }
}

// WithHolder sets the holder of requests without one. The default is [DefaultHolder].
func WithHolder(holder string) Option {
	return func(b *Backend) { b.holder = holder }
}
