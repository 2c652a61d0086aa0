//go:build unix

package supervise

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// watcherVariable makes a process of this program a watcher. Its value is the folder that the watcher removes.
	watcherVariable = "KUBECTL_LOCK_WATCHER"
	// watcherName is what a watcher is called, so that a kill of all processes with the name of the program leaves it.
	watcherName = "lock-watcher"
	// watcherPipe is the descriptor that a watcher reads from.
	watcherPipe = 3
	// messageSize is that of a message: a process group, or zero before there is one, and when to kill it, or zero for never.
	messageSize = 16
)

// watcher is the process that kills the process group of the command when this process cannot.
type watcher struct {
	process *exec.Cmd
	pipe    *os.File
	// ended is closed when the watcher has ended.
	ended chan struct{}
}

func startWatcher(scratch string) (*watcher, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	far, near, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer far.Close() //nolint:errcheck // the watcher has it
	w := &watcher{pipe: near, ended: make(chan struct{})}
	// It is this program, which ends with the pipe.
	w.process = &exec.Cmd{
		Path: program, Args: []string{watcherName}, Env: append(os.Environ(), watcherVariable+"="+scratch),
		ExtraFiles: []*os.File{far}, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := w.process.Start(); err != nil {
		_ = near.Close()
		return nil, fmt.Errorf("start the watcher: %w", err)
	}
	go func() {
		defer close(w.ended)
		_ = w.process.Wait()
	}()
	return w, nil
}

// tell replaces what the watcher is to kill, and when. A watcher that does not read, because it is stopped, is of no use, and
// is killed when the pipe is full.
func (w *watcher) tell(group int, at time.Duration) {
	message := binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, uint64(group)), uint64(at))
	connection, err := w.pipe.SyscallConn()
	if err == nil {
		_ = connection.Write(func(descriptor uintptr) bool {
			_, err = unix.Write(int(descriptor), message)
			return true
		})
	}
	if err != nil {
		_ = w.process.Process.Kill()
	}
}

// stop ends the watcher when nothing is left to watch.
func (w *watcher) stop() {
	_ = w.process.Process.Kill()
	<-w.ended
	_ = w.pipe.Close()
}

// RunWatcher reports whether this process was started as a watcher, and has watched if so. A program calls it first.
func RunWatcher(clock Clock) bool {
	scratch, isWatcher := os.LookupEnv(watcherVariable)
	if !isWatcher {
		return false
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	_ = os.WriteFile("/proc/self/comm", []byte(watcherName), 0) // It fails where processes have no other name.
	if watch(clock) {
		_ = os.RemoveAll(scratch)
	}
	return true
}

// watch kills the group of the last message when its time has passed, or when the other process has ended. It reports whether
// there was any message.
func watch(clock Clock) (wasTold bool) {
	parent := os.Getppid()
	group, isLate, wasTold := readMessages(clock)
	switch {
	case group != 0:
		_ = unix.Kill(-group, unix.SIGKILL)
	case isLate && os.Getppid() == parent:
		// The other process was stopped while it started the command, whose group the watcher does not know. On Linux the
		// command ends with the process.
		_ = unix.Kill(parent, unix.SIGKILL)
	}
	return wasTold
}

// readMessages returns the group of the last message, and whether its time has passed; if not, the other process has ended.
func readMessages(clock Clock) (group int, isLate, wasTold bool) {
	killAt := time.Duration(0)
	messages := make([]byte, 4096*messageSize) // as many as are in a pipe
	for {
		timeout := -time.Millisecond
		if killAt != 0 {
			timeout = min(max(0, killAt-clock.Now()), lookAgain)
		}
		// What was told counts before the time that has passed meanwhile.
		n, err := unix.Poll([]unix.PollFd{{Fd: watcherPipe, Events: unix.POLLIN}}, int(timeout.Milliseconds()))
		switch {
		case n > 0:
			n, err = unix.Read(watcherPipe, messages)
		case n == 0 && clock.Now() >= killAt:
			return group, true, wasTold
		case n == 0:
			continue
		}
		switch {
		case n >= messageSize:
			last := messages[n-messageSize : n]
			wasTold = true
			group, killAt = int(binary.NativeEndian.Uint64(last)), time.Duration(binary.NativeEndian.Uint64(last[8:]))
		case !errors.Is(err, unix.EINTR):
			return group, false, wasTold
		}
	}
}
