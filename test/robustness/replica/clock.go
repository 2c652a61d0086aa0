package main

import (
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// steppedClock is the clock of a machine whose administrator sets it to another time.
// As there, only readings step: timers and tickers go on.
type steppedClock struct {
	clock.RealClock

	ahead atomic.Int64
}

func (c *steppedClock) set(ahead time.Duration) { c.ahead.Store(int64(ahead)) }

// Now implements [clock.PassiveClock]. Its readings have no monotonic part, with which
// the difference of two would not show the step.
func (c *steppedClock) Now() time.Time {
	return time.Now().Round(0).Add(time.Duration(c.ahead.Load()))
}

// Since implements [clock.PassiveClock].
func (c *steppedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
