// Package machine has the clock of a machine that tests suspend.
package machine

import (
	"sync/atomic"
	"time"
	"unsafe"

	"k8s.io/utils/clock"
)

// Clock is the clock of a machine. While the machine is suspended, its wall clock goes on, and its
// monotonic clock and timers stand still. Safe for concurrent use.
type Clock struct {
	clock.RealClock
	start     time.Time
	suspended atomic.Int64
}

// origin has a monotonic part, which readings inside a bubble of synctest have not.
var origin = time.Now()

// NewClock returns the clock of a machine that was not suspended yet. Inside a bubble of synctest
// it goes with the clock of the bubble.
func NewClock() *Clock { return &Clock{start: time.Now()} }

// Suspend suspends the machine, for no time by the clock of the test.
func (c *Clock) Suspend(length time.Duration) { c.suspended.Add(int64(length)) }

// Now implements [clock.PassiveClock].
func (c *Clock) Now() time.Time {
	return MonotonicBehind(origin.Add(time.Since(c.start)), time.Duration(c.suspended.Load()))
}

// Since implements [clock.PassiveClock].
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// MonotonicBehind returns what a clock shows when its wall clock has moved on and its monotonic
// clock has not. The reading must have both. Package time has no other way to make such a reading.
func MonotonicBehind(reading time.Time, by time.Duration) time.Time {
	type insides struct {
		wall uint64
		ext  int64
		loc  *time.Location
	}
	reading = reading.Add(by)
	(*insides)(unsafe.Pointer(&reading)).ext -= int64(by)
	return reading
}
