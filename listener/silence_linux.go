package listener

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// BoundSilence has the connection end if its client does not acknowledge for so long what it was sent. A later call can only make
// it shorter.
func (c *Conn) BoundSilence(silence time.Duration) {
	if c == nil {
		return
	}
	made, ok := c.Conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := made.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // What has ended needs no bound.
		bound := int(silence.Milliseconds())
		if known, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT); err == nil && known > 0 {
			bound = min(bound, known)
		}
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, bound)
	})
}
