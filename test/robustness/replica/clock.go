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

// step moves the clock.
func (c *steppedClock) step(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += by
}

// drift makes the clock too fast by so many percent from now on. It stays ahead by what it
// has gained before.
func (c *steppedClock) drift(percent int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.ahead += c.gained(now)
	c.percent, c.since = percent, now
}

// gained needs the mutex.
func (c *steppedClock) gained(now time.Time) time.Duration {
	if c.percent == 0 {
		return 0
	}
	return now.Sub(c.since) * time.Duration(c.percent) / 100
}

// Now implements [clock.PassiveClock]. Its readings have no monotonic part, which would
// hide the step in the difference of two readings.
func (c *steppedClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	return now.Round(0).Add(c.ahead + c.gained(now))
}

// Since implements [clock.PassiveClock].
func (c *steppedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
