package locktest

import (
	"time"

	"k8s.io/utils/clock"
)

// promptly is how long it takes at most to start a timer.
const promptly = time.Millisecond

// alarm returns a timer that fires at a time. Timers are told how long to run; a clock
// that is stepped while that is worked out would make it late, so it is done again.
func alarm(source clock.WithTicker, at time.Time) clock.Timer {
	for {
		now := source.Now()
		timer := source.NewTimer(at.Sub(now))
		if source.Since(now) < promptly {
			return timer
		}
		timer.Stop()
	}
}
