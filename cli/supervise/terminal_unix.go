//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal of this process. Nil is none.
type terminal struct {
	file *os.File
	// settings are those that restore sets; nil if they could not be read.
	settings *unix.Termios
}

func openTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &terminal{file: file}
}

func (t *terminal) close() {
	if t != nil {
		_ = t.file.Close()
	}
}

// foreground returns the foreground process group, or zero.
func (t *terminal) foreground() int {
	if t == nil {
		return 0
	}
	group, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// give makes a process group the foreground one. This process must ignore TTOU, see ignoreTerminalOutput.
func (t *terminal) give(group int) {
	if t != nil {
		_ = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group)
	}
}

// ignoreTerminalOutput lets this process write to the terminal, and give it away, from the background.
func ignoreTerminalOutput() { signal.Ignore(syscall.SIGTTOU) }

// forkCommand starts a process that does not ignore TTOU as this process does.
func forkCommand(path string, args []string, attributes *syscall.ProcAttr) (int, error) {
	if signal.Ignored(syscall.SIGTTOU) {
		// A signal that is caught has its default action in a new process; [signal.Reset] would leave it ignored.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGTTOU)
		defer ignoreTerminalOutput()
	}
	return syscall.ForkExec(path, args, attributes) //nolint:gosec // running it is the purpose
}

// save notes the settings for restore.
func (t *terminal) save() {
	if t != nil {
		t.settings, _ = unix.IoctlGetTermios(int(t.file.Fd()), getTermios)
	}
}

// restore undoes what a command has set that could not do so itself.
func (t *terminal) restore() {
	if t != nil && t.settings != nil {
		_ = unix.IoctlSetTermios(int(t.file.Fd()), setTermios, t.settings)
	}
}

// isTerminal reports whether a descriptor is a terminal.
func isTerminal(descriptor int) bool {
	_, err := unix.IoctlGetWinsize(descriptor, unix.TIOCGWINSZ)
	return err == nil
}

// canStop reports whether there is a shell that continues this process's group after it was stopped: a parent of
// a member, in the same session and another group. The kernel discards ^Z for other groups.
func canStop() bool {
	group, session := unix.Getpgrp(), sessionOf(0)
	for pid := os.Getppid(); pid > 0; pid = parentOf(pid) {
		if sessionOf(pid) != session {
			return false
		}
		if of, err := unix.Getpgid(pid); err != nil || of != group {
			return err == nil
		}
	}
	return false
}

func sessionOf(pid int) int {
	session, err := unix.Getsid(pid)
	if err != nil {
		return -1
	}
	return session
}
