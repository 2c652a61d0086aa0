package supervise

import (
	"os"
	"syscall"
)

// The Go runtime leaves the first three real-time signals to C libraries.
const firstRealTimeSignal, lastRealTimeSignal = 35, 64

func systemSignals() []os.Signal {
	signals := []os.Signal{syscall.SIGPWR, syscall.SIGSTKFLT}
	for number := firstRealTimeSignal; number <= lastRealTimeSignal; number++ {
		signals = append(signals, syscall.Signal(number))
	}
	return signals
}
