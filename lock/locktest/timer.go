package locktest

import (
	"time"

	"k8s.io/utils/clock"
)

// timerStartTime is how long starting a timer takes at most.
const timerStartTime = time.Millisecond

// timerAt returns a timer that fires at a time. Timers take a duration; if the clock is stepped
// while that is computed, the timer would be late, and timerAt starts another.
func timerAt(source clock.WithTicker, at time.Time) clock.Timer {
	for {
		now := source.Now()
		timer := source.NewTimer(at.Sub(now))
		if source.Since(now) < timerStartTime {
			return timer
		}
		timer.Stop()
	}
}
