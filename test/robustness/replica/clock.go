package main

import (
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// steppedClock is the clock of a machine whose administrator changes the time. Only
// readings step; timers and tickers continue.
type steppedClock struct {
	clock.RealClock

	ahead atomic.Int64
}

func (c *steppedClock) set(ahead time.Duration) { c.ahead.Store(int64(ahead)) }

// Now implements [clock.PassiveClock]. Its readings have no monotonic part, which would
// hide the step in the difference of two readings.
func (c *steppedClock) Now() time.Time {
	return time.Now().Round(0).Add(time.Duration(c.ahead.Load()))
}

// Since implements [clock.PassiveClock].
func (c *steppedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
