//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"syscall"
)

// passedOn are the signals that the command gets instead of this process. KILL and STOP cannot be caught, CHLD
// is about the command, TTIN and TTOU are about the terminal of this process, a PIPE cannot be told from that of a
// write of this process, and PROF and URG are the Go runtime's own.
func passedOn() []os.Signal {
	signals := []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGBUS,
		syscall.SIGFPE, syscall.SIGUSR1, syscall.SIGSEGV, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGTERM, syscall.SIGCONT,
		syscall.SIGTSTP, syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGVTALRM, syscall.SIGWINCH,
		syscall.SIGIO, syscall.SIGSYS,
	}
	return append(signals, systemSignals()...)
}

// endsProcess reports whether a signal tells a process to end.
func endsProcess(s os.Signal) bool {
	switch s {
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM:
		return true
	}
	return false
}

// notify begins to receive the signals to pass on and those about children. What the caller has this process
// ignore, as nohup does, stays ignored.
func notify() (signals, children chan os.Signal, stop func()) {
	signals, children = make(chan os.Signal, 64), make(chan os.Signal, 1)
	for _, s := range passedOn() {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	signal.Notify(children, syscall.SIGCHLD)
	// A message to a closed pipe must not end this process.
	unread := make(chan os.Signal, 1)
	signal.Notify(unread, syscall.SIGPIPE)
	return signals, children, func() {
		signal.Stop(signals)
		signal.Stop(children)
		signal.Stop(unread)
	}
}
