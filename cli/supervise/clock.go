package supervise

import (
	"time"

	"k8s.io/utils/clock"
)

// Clock tells the time since some moment, the time that the machine was suspended included. Safe for concurrent use.
type Clock interface {
	Now() time.Duration
	// At returns a channel with a value as soon as the time is reached, and maybe earlier.
	At(time.Duration) <-chan time.Time
}

// NewClock returns the clock of this machine.
func NewClock() Clock { return machineClock{} }

type machineClock struct{}

// Now implements [Clock].
func (machineClock) Now() time.Duration { return now() }

// At implements [Clock].
func (machineClock) At(at time.Duration) <-chan time.Time {
	return clock.RealClock{}.After(min(max(0, at-now()), lookAgain))
}

// lookAgain is how late this process is at most after a suspension, during which timers stand still.
const lookAgain = time.Second
