//go:build unix

package supervise

import (
	"os"
	"syscall"
)

// passedOn are the signals that the command gets instead of this process. KILL and STOP cannot be caught, CHLD
// is about the command, TTIN and TTOU are about the terminal of this process, a PIPE cannot be told from that of a
// write of this process, and PROF and URG are the Go runtime's own.
func passedOn() []os.Signal {
	return append(systemSignals(),
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGBUS,
		syscall.SIGFPE, syscall.SIGUSR1, syscall.SIGSEGV, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGTERM, syscall.SIGCONT,
		syscall.SIGTSTP, syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGVTALRM, syscall.SIGWINCH, syscall.SIGIO, syscall.SIGSYS)
}

// endsWait reports whether a signal ends a wait for which no command was started. ^Z stops it.
func endsWait(sent os.Signal) bool {
	if sent == syscall.SIGTSTP {
		stopOwnGroup()
	}
	return sent == syscall.SIGHUP || sent == syscall.SIGINT || sent == syscall.SIGQUIT || sent == syscall.SIGTERM
}

// stopOwnGroup stops this process and the rest of its job, as ^Z would without the handler of the Go runtime: a shell sees its
// job stopped, and without a shell above it, which would continue it, the kernel discards the signal.
func stopOwnGroup() { _ = syscall.Kill(0, syscall.SIGTTIN) }
