package supervise

import (
	"bytes"
	"crypto/rand"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// markPrefix begins the name of a variable that only the processes of one run have. The names differ, so that a run
// below another one has both.
const markPrefix = "KUBECTL_LOCK_RUN_"

func newMark() string { return markPrefix + rand.Text() }

// killMarked kills the processes with the variable, and returns how many of them run yet. It sees those of other users
// only with the right to do so.
func killMarked(mark string) (count int) {
	if !isOwnProc() {
		return 0
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || !isMarked(pid, mark) {
			continue
		}
		if killIf(pid, func() bool { return isMarked(pid, mark) }) {
			count++
		}
	}
	return count
}

// killIf kills a process if it is the one that was meant, whose number another one may get at any time.
func killIf(pid int, isMeant func() bool) bool {
	descriptor, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(descriptor) //nolint:errcheck // nothing was written
	return isMeant() && unix.PidfdSendSignal(descriptor, syscall.SIGKILL, nil, 0) == nil
}

// isMarked reports whether the process was started with the variable. A zombie is not.
func isMarked(pid int, mark string) bool {
	environment, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && slices.ContainsFunc(bytes.Split(environment, []byte{0}), func(variable []byte) bool {
		return bytes.HasPrefix(variable, []byte(mark+"="))
	})
}

// isOwnProc reports whether /proc is that of this PID namespace. The numbers in that of another one are those of
// other processes.
func isOwnProc() bool {
	self, err := os.Readlink("/proc/self")
	return err == nil && self == strconv.Itoa(os.Getpid())
}

// setName sets the name that tools as ps and pkill know this process by.
func setName(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }
