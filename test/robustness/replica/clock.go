package main

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// steppedClock is the clock of a machine whose administrator changes the time, or that runs
// at a wrong speed. Only readings are wrong; timers and tickers are right.
type steppedClock struct {
	clock.RealClock

	mu    sync.Mutex
	ahead time.Duration
	// percent is how much too fast it has run since then.
	percent int
	since   time.Time
}

// set makes the clock so far ahead, and too fast by so many percent from now on.
func (c *steppedClock) set(ahead time.Duration, percent int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead, c.percent, c.since = ahead, percent, time.Now()
}

// Now implements [clock.PassiveClock]. Its readings have no monotonic part, which would
// hide the step in the difference of two readings.
func (c *steppedClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	drifted := now.Sub(c.since) * time.Duration(c.percent) / 100
	if c.percent == 0 {
		drifted = 0
	}
	return now.Round(0).Add(c.ahead + drifted)
}

// Since implements [clock.PassiveClock].
func (c *steppedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
