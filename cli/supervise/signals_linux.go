package supervise

import (
	"os"
	"syscall"
)

// The first two real-time signals are the C library's own.
const firstRealTimeSignal, lastRealTimeSignal = 34, 64

func systemSignals() []os.Signal {
	signals := []os.Signal{syscall.SIGPWR, syscall.SIGSTKFLT}
	for number := firstRealTimeSignal; number <= lastRealTimeSignal; number++ {
		signals = append(signals, syscall.Signal(number))
	}
	return signals
}
