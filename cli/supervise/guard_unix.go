//go:build unix

package supervise

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// guardVariable makes a process of this program a guard.
	guardVariable = "KUBECTL_LOCK_GUARD"
	// guardName is what a guard is called, so that a kill of all processes with the name of the program leaves it.
	guardName = "lock-guard"
	// guardLink is the descriptor of a guard's connection to its supervisor.
	guardLink = 3
	// guardPause is how long a guard waits between its looks for processes that are left.
	guardPause = 10 * time.Millisecond
	// guardPatience is how long it looks for them: some may hang in the kernel.
	guardPatience = 10 * time.Second
)

// guard is a process that tidies up if front and supervisor are killed at once: one that cannot do its work any more
// is not needed, so nothing is told to the user.
type guard struct {
	pid  int
	link *os.File
}

// startGuard starts the guard of the run with the mark, in a session of its own.
func startGuard(mark string) (*guard, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close() //nolint:errcheck // nothing was written
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("make a socket pair: %w", err)
	}
	defer unix.Close(ends[1]) //nolint:errcheck // the guard has it
	syscall.CloseOnExec(ends[0])
	syscall.CloseOnExec(ends[1])
	g := &guard{link: os.NewFile(uintptr(ends[0]), "guard")}
	g.pid, err = syscall.ForkExec(program, []string{guardName}, &syscall.ProcAttr{ //nolint:gosec // this program
		Dir: "/", Env: append(os.Environ(), guardVariable+"="+mark),
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), uintptr(ends[1])}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_ = g.link.Close()
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	return g, nil
}

// tell has the guard know what there is to tidy up. That fails only if it was killed.
func (g *guard) tell(m message) {
	if g == nil {
		return
	}
	if text, err := json.Marshal(m); err == nil {
		_, _ = g.link.Write(append(text, '\n'))
	}
}

// stop ends a guard when nothing is left to tidy up.
func (g *guard) stop() {
	if g == nil {
		return
	}
	_ = unix.Kill(g.pid, syscall.SIGKILL)
	for {
		if _, err := unix.Wait4(g.pid, nil, 0, nil); err != unix.EINTR {
			break
		}
	}
	_ = g.link.Close()
}

// IsGuard reports whether this process is to be a guard, see [RunGuard].
func IsGuard() bool { return os.Getenv(guardVariable) != "" }

// RunGuard waits until the supervisor has ended that has started this process. Unless it has killed this process before,
// it has not tidied up: RunGuard kills what is left of its command, and removes its folders. It returns an exit status.
func RunGuard(clock Clock) (status int) {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE)
	setName(guardName)
	mark := os.Getenv(guardVariable)
	messages := make(chan message)
	go receive(os.NewFile(guardLink, "supervisor"), messages)
	var folders []string
	group := 0
	for told := range messages {
		switch told.Kind {
		case kindScratch:
			folders = append(folders, told.Path)
		case kindStarted:
			group = told.PID
		case kindEnded:
			group = 0 // another group may get its number
		case kindStarting, kindStopped:
		}
	}
	kill := func() (killed int) {
		if group > 0 {
			_ = unix.Kill(-group, syscall.SIGKILL)
		}
		return killMarked(mark)
	}
	left := kill()
	for _, folder := range folders {
		_ = os.RemoveAll(folder)
	}
	timer := clock.NewTimer()
	defer timer.Close()
	// Those that were forked meanwhile.
	for end := clock.Now() + guardPatience; left > 0 && clock.Now() < end; left = kill() {
		timer.Set(clock.Now() + guardPause)
		<-timer.C()
	}
	return 0
}
