//go:build !linux

package main

import "syscall"

// childAttributes protect the child from a Ctrl-C in the terminal, which would end all
// processes at once and out of order. Only Linux can also end the child when the supervisor
// is killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
