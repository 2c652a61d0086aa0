package main

import "syscall"

// childAttributes keep a Ctrl-C in the terminal away from the child, which would
// otherwise get it together with the supervisor and out of order, and have the
// kernel kill the child when the thread that started it ends.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
