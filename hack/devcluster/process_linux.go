package main

import "syscall"

// childAttributes protect the child from a Ctrl-C in the terminal, which would end all
// processes at once and out of order. They let the kernel kill the child when the thread
// that started it ends.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
