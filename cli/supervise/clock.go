package supervise

import (
	"time"

	"k8s.io/utils/clock"
)

// Clock tells the time since some moment, the time that the machine was suspended included. Safe for concurrent use.
type Clock interface {
	Now() time.Duration
	// NewTimer returns a timer that may fire at any time until it is set.
	NewTimer() Timer
}

// Timer sends on its channel when a time of its clock is reached, or earlier.
type Timer interface {
	// Set replaces the time at which the timer fires.
	Set(at time.Duration)
	C() <-chan time.Time
	Stop() bool
}

// NewClock returns the clock of this machine.
func NewClock() Clock { return machineClock{} }

type machineClock struct{}

func (machineClock) Now() time.Duration { return now() }

func (machineClock) NewTimer() Timer { return machineTimer{clock.RealClock{}.NewTimer(lookAgain)} }

// lookAgain is how late this process is at most after a suspension, during which timers stand still.
const lookAgain = time.Second

type machineTimer struct{ clock.Timer }

func (t machineTimer) Set(at time.Duration) { t.Reset(min(max(0, at-now()), lookAgain)) }
