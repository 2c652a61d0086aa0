package main

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/test/support/machine"
)

const (
	// minSuspend is the shortest stop of the process that counts as a suspend of the machine.
	minSuspend = 500 * time.Millisecond
	// maxSuspendDelay bounds the wait for that stop, in which the clock cannot be read.
	maxSuspendDelay = 5 * time.Second
)

// steppedClock is the clock of a machine whose administrator changes the time, that runs at a
// wrong speed, or that is suspended. Only readings are wrong; timers and tickers are right.
type steppedClock struct {
	clock.RealClock

	mu sync.Mutex
	// ahead is by how much both parts of its readings are wrong, and stepped by how much more the wall clock alone is.
	ahead, stepped time.Duration
	// percent is how much too fast it has run since then.
	percent int
	since   time.Time
	// suspended is for how long the monotonic clock has stood still.
	suspended time.Duration
}

// step moves the wall clock, as an administrator does.
func (c *steppedClock) step(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stepped += by
}

// pause leaves the clock behind, as a pause of the machine does that none of its clocks notices.
func (c *steppedClock) pause(length time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead -= length
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

// suspend makes the next stop of this process a suspend of its machine: the monotonic clock
// does not count it, and the wall clock does. There is no reading from when ready is called
// until the process goes on, so none shows the one without the other.
func (c *steppedClock) suspend(ready func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := time.Now() // The process may be stopped before ready returns.
	ready()
	for last := first; last.Sub(first) < maxSuspendDelay && sleep(context.Background(), time.Millisecond); {
		now := time.Now()
		if gap := now.Sub(last); gap >= minSuspend {
			c.suspended += gap
			return
		}
		last = now
	}
}

// Now implements [clock.PassiveClock].
func (c *steppedClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	return machine.MonotonicBehind(now.Add(c.ahead+c.gained(now)-c.suspended), c.suspended+c.stepped)
}

// Since implements [clock.PassiveClock].
func (c *steppedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
