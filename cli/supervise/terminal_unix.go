//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is the controlling terminal of this process. Nil is none.
type terminal struct {
	descriptor int
	// settings are those that restore sets; nil if they could not be read.
	settings *term.State
}

// openTerminal also lets this process write to the terminal, and give it away, from the background.
func openTerminal() *terminal {
	descriptor, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	signal.Ignore(syscall.SIGTTOU)
	settings, _ := term.GetState(descriptor)
	return &terminal{descriptor: descriptor, settings: settings}
}

// hasForeground reports whether the process group has the terminal.
func (t *terminal) hasForeground(group int) bool {
	if t == nil {
		return false
	}
	found, err := unix.IoctlGetInt(t.descriptor, unix.TIOCGPGRP)
	return err == nil && found == group
}

// pass gives the terminal from one process group to another, and reports whether the first one had it.
func (t *terminal) pass(from, to int) bool {
	return t.hasForeground(from) && unix.IoctlSetPointerInt(t.descriptor, unix.TIOCSPGRP, to) == nil
}

// restore undoes what a command has set that could not do so itself.
func (t *terminal) restore() {
	if t.settings != nil {
		_ = term.Restore(t.descriptor, t.settings)
	}
}

// forkCommand starts a process that does not ignore TTOU as this process may.
func forkCommand(path string, args []string, attributes *syscall.ProcAttr) (int, error) {
	if signal.Ignored(syscall.SIGTTOU) {
		// A signal that is caught has its default action in a new process; [signal.Reset] would leave it ignored.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGTTOU)
		defer signal.Ignore(syscall.SIGTTOU)
	}
	return syscall.ForkExec(path, args, attributes) //nolint:gosec // running it is the purpose
}
