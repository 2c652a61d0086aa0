//go:build unix && !linux

package supervise

import "syscall"

func becomeSubreaper() error { return nil }

func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}

// tree is the process group of the command.
type tree struct {
	leader    int
	hasLeader bool
}

func newTree() tree { return tree{} }

func (t tree) leaveOut(int) {}

func (t tree) reapOrphans() {}

func (t tree) members() []int { return groupMembers(t.leader) }

func (t tree) signal(s syscall.Signal) {
	if t.leader > 0 {
		_ = syscall.Kill(-t.leader, s)
	}
}

func (t tree) isComplete() bool { return false }
