//go:build unix

package supervise

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// groupMembers returns the leader if its process group has a member, though others may be left of it. It is
// for systems on which the members cannot be listed. A zombie counts.
func groupMembers(leader int) []int {
	if leader <= 0 || errors.Is(unix.Kill(-leader, 0), syscall.ESRCH) {
		return nil
	}
	return []int{leader}
}
