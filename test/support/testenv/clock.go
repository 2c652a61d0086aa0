package testenv

import (
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// SteppedClock is the real clock until it is stepped; its readings then jump, for want
// of a monotonic part. Timers are those of the real clock. Safe for concurrent use.
type SteppedClock struct {
	clock.RealClock
	off atomic.Int64
}

// Step moves the clock, from where it is.
func (c *SteppedClock) Step(by time.Duration) { c.off.Add(int64(by)) }

// Now implements [clock.PassiveClock].
func (c *SteppedClock) Now() time.Time {
	return c.RealClock.Now().Round(0).Add(time.Duration(c.off.Load()))
}

// Since implements [clock.PassiveClock].
func (c *SteppedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
