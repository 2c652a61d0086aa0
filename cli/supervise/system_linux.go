package supervise

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
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

// dieWithParent has the kernel kill a child when the thread ends that has started it.
func dieWithParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGKILL }

// now goes on while the machine is suspended.
func now() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // It fails for unknown clocks only.
	return time.Duration(now.Nano())
}
