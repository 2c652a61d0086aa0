package limits

import (
	"time"

	"k8s.io/utils/clock"
)

// Level tells since when a count has been at its bound. To leave it, the count must fall below
// four fifths of the bound: a count that moves around the bound stays at it. It needs a mutex of
// its owner.
type Level struct{ since time.Time }

// Update records the count.
func (l *Level) Update(count, bound int, clock clock.PassiveClock) {
	switch {
	case count >= bound && l.since.IsZero():
		l.since = clock.Now()
	case count < bound-bound/5:
		l.since = time.Time{}
	}
}

// For is how long the count has been at its bound at a time. Zero means that it is not.
func (l *Level) For(now time.Time) time.Duration {
	if l.since.IsZero() {
		return 0
	}
	return max(1, now.Sub(l.since))
}
