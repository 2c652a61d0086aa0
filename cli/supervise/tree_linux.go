package supervise

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// becomeSubreaper makes this process the parent of descendants whose parents end.
func becomeSubreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	return nil
}

// dieWithParent makes the kernel send the signal to a child when this thread ends.
func dieWithParent(attributes *syscall.SysProcAttr, with syscall.Signal) { attributes.Pdeathsig = with }

// tree is the descendants of this process, without those in its own process group: these are its helpers, such
// as credential plugins, and belong to other code.
type tree struct {
	// leader is the process group to fall back on if there is no usable /proc.
	leader int
	// hasLeader says that the leader is this process's child yet, so that no other group can have its number.
	hasLeader bool
	// inherited are children that this process had before it started any, and those that are left out.
	inherited map[int]bool
	ownGroup  int
	hasProc   bool
}

func newTree() tree {
	t := tree{ownGroup: unix.Getpgrp(), inherited: map[int]bool{}}
	t.hasProc = isOwnProc()
	if t.hasProc {
		if _, err := os.Stat("/proc/thread-self/children"); err != nil {
			t.hasProc = false
		}
	}
	if t.hasProc {
		for _, pid := range childrenOf(os.Getpid()) {
			t.inherited[pid] = true
		}
	}
	return t
}

// leaveOut has the tree be without a process that is, or may become, a child.
func (t tree) leaveOut(pid int) { t.inherited[pid] = true }

// children returns the direct children that belong to the tree.
func (t tree) children() []process {
	var found []process
	for _, pid := range childrenOf(os.Getpid()) {
		if t.inherited[pid] {
			continue
		}
		if child, ok := readProcess(pid); ok && child.group != t.ownGroup {
			found = append(found, child)
		}
	}
	return found
}

// reapOrphans reaps the direct children that have ended, except the leader.
func (t tree) reapOrphans() {
	if !t.hasProc {
		for !t.hasLeader && t.leader > 0 {
			if pid, err := unix.Wait4(-t.leader, nil, unix.WNOHANG, nil); err != nil || pid <= 0 {
				return
			}
		}
		return
	}
	for _, child := range t.children() {
		if child.isZombie && child.pid != t.leader {
			_, _ = unix.Wait4(child.pid, nil, unix.WNOHANG, nil)
		}
	}
}

// members returns the processes of the tree that run.
func (t tree) members() []int {
	if !t.hasProc {
		return groupMembers(t.leader)
	}
	var running []int
	for _, child := range t.children() {
		if !child.isZombie {
			running = appendDescendants(append(running, child.pid), child.pid)
		}
	}
	return running
}

func appendDescendants(to []int, pid int) []int {
	for _, child := range childrenOf(pid) {
		to = append(to, child)
		to = appendDescendants(to, child)
	}
	return to
}

// signal sends a signal to the whole tree. A process that is forked meanwhile may be missed. Its parent, or
// another ancestor, is a child of this process that gets the signal: if that ends it, SIGCHLD follows.
func (t tree) signal(s syscall.Signal) {
	if t.leader > 0 && (t.hasLeader || !t.hasProc) {
		_ = unix.Kill(-t.leader, s)
	}
	if !t.hasProc {
		return
	}
	for _, pid := range t.members() {
		group, err := unix.Getpgid(pid)
		if err == nil && (group != t.leader || !t.hasLeader) {
			_ = unix.Kill(pid, s)
		}
	}
}

// isComplete says that a tree without members is empty, and its processes are told of by SIGCHLD.
func (t tree) isComplete() bool { return t.hasProc }

type process struct {
	pid, group int
	isZombie   bool
}

// readProcess returns false if the process is gone.
func readProcess(pid int) (process, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	// The name is in parentheses and may have any character.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 3 {
		return process{}, false
	}
	group, err := strconv.Atoi(fields[2])
	return process{pid: pid, group: group, isZombie: fields[0] == "Z" || fields[0] == "X"}, err == nil
}

// childrenOf returns the children of all threads of the process.
func childrenOf(pid int) []int {
	threads := "/proc/" + strconv.Itoa(pid) + "/task"
	entries, err := os.ReadDir(threads)
	if err != nil {
		return nil
	}
	var children []int
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(threads, entry.Name(), "children"))
		if err != nil {
			continue
		}
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}
