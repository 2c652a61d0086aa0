package testenv

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// EtcdURL is where etcd serves clients.
func (e *Environment) EtcdURL() string { return e.envtest.ControlPlane.Etcd.URL.String() }

// KillAPIServer ends the API server without letting it finish anything, etcd stays.
// [Environment.StartAPIServer] brings it back.
func (e *Environment) KillAPIServer() error {
	pid, err := child("kube-apiserver", e.dir)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill the API server: %w", err)
	}
	return nil
}

// child returns the child of this process that runs the program with the word in its
// command line.
func child(program, word string) (int, error) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	for _, path := range lines {
		line, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(line, []byte(program)) || !bytes.Contains(line, []byte(word)) {
			continue // Another process, or one that has ended meanwhile.
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && parent(pid) == os.Getpid() {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("no %s runs here", program)
}

// isStopped reports whether a signal has stopped every thread of the process.
func isStopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*/stat", pid)) // The pattern is well formed.
	for _, path := range threads {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // The thread has ended.
		}
		// The name before the last bracket may hold anything.
		if _, rest, _ := strings.Cut(string(content), ") "); !strings.HasPrefix(rest, "T") {
			return false
		}
	}
	return len(threads) > 0
}

// parent returns the parent of a process, or 0 if it has ended or is a zombie.
func parent(pid int) int {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name before the last bracket may hold anything.
	_, rest, _ := strings.Cut(string(content), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 2 || fields[0] == "Z" {
		return 0
	}
	number, _ := strconv.Atoi(fields[1]) // The kernel writes a number.
	return number
}
