//go:build !linux

package main

import "syscall"

// childAttributes keep a Ctrl-C in the terminal away from the child, which would
// otherwise get it together with the supervisor and out of order. Only Linux can
// also end the child when the supervisor is killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
