package supervise

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// NewClock returns the clock of this machine.
func NewClock() Clock { return bootClock{} }

// bootClock goes on while the machine is suspended.
type bootClock struct{}

// Now implements [Clock].
func (bootClock) Now() time.Duration {
	var now unix.Timespec
	// It fails for unknown clocks only.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
	return time.Duration(now.Nano())
}

// NewTimer implements [Clock].
func (bootClock) NewTimer() Timer {
	descriptor, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		// Without descriptors nothing else works either; a command that is not watched must not run.
		panic("create a timer: " + err.Error())
	}
	t := &bootTimer{file: os.NewFile(uintptr(descriptor), "timer"), fired: make(chan struct{}, 1), closed: make(chan struct{})}
	go t.loop()
	return t
}

// bootTimer fires as soon as a machine is back that was suspended at the time.
type bootTimer struct {
	file   *os.File
	fired  chan struct{}
	closed chan struct{}
}

func (t *bootTimer) loop() {
	defer close(t.closed)
	for {
		if _, err := t.file.Read(make([]byte, 8)); err != nil {
			return
		}
		select {
		case t.fired <- struct{}{}:
		default:
		}
	}
}

// Set implements [Timer].
func (t *bootTimer) Set(at time.Duration) {
	// A time of zero would turn the timer off.
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(1, int64(at)))}
	connection, err := t.file.SyscallConn()
	if err != nil {
		return
	}
	_ = connection.Control(func(descriptor uintptr) {
		_ = unix.TimerfdSettime(int(descriptor), unix.TFD_TIMER_ABSTIME, &spec, nil)
	})
}

// C implements [Timer].
func (t *bootTimer) C() <-chan struct{} { return t.fired }

// Close implements [Timer].
func (t *bootTimer) Close() {
	_ = t.file.Close()
	<-t.closed
}
