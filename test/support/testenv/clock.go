package testenv

import (
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// SteppedClock is the real clock plus an offset. Its readings have no monotonic part, so
// they jump with a step. Timers are those of the real clock. Safe for concurrent use.
type SteppedClock struct {
	clock.RealClock
	off atomic.Int64
}

// Step adds to the offset of the clock.
func (c *SteppedClock) Step(by time.Duration) { c.off.Add(int64(by)) }

// Now implements [clock.PassiveClock].
func (c *SteppedClock) Now() time.Time {
	return c.RealClock.Now().Round(0).Add(time.Duration(c.off.Load()))
}

// Since implements [clock.PassiveClock].
func (c *SteppedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
