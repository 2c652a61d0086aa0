package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// EtcdURL returns the URL at which etcd serves clients.
func (e *Environment) EtcdURL() string { return e.envtest.ControlPlane.Etcd.URL.String() }

// KillEtcd kills etcd in the middle of its requests; the API server keeps running.
func (e *Environment) KillEtcd() error {
	pid, err := e.etcd()
	if err != nil {
		return err
	}
	return kill(pid)
}

// StartEtcd starts etcd again after [Environment.KillEtcd], with its data, at the same address.
func (e *Environment) StartEtcd() error { return e.envtest.ControlPlane.Etcd.Start() }

// SetEtcdFlag sets a flag of etcd, by its name without dashes, from the next start on.
func (e *Environment) SetEtcdFlag(name, value string) {
	e.envtest.ControlPlane.Etcd.Configure().Set(name, value)
}

// EtcdData returns the folder of etcd's data.
func (e *Environment) EtcdData() string { return e.envtest.ControlPlane.Etcd.DataDir }

// PauseEtcd stops etcd, as [Pause] does, until [Environment.ResumeEtcd]; its connections stay.
func (e *Environment) PauseEtcd() error {
	pid, err := e.etcd()
	if err != nil {
		return err
	}
	return Pause(pid)
}

// ResumeEtcd continues etcd.
func (e *Environment) ResumeEtcd() error {
	pid, err := e.etcd()
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGCONT)
}

// Pause stops a process until it is sent SIGCONT. It returns when all its threads have stopped, which on a busy machine is
// later than the signal.
func Pause(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pause process %d: %w", pid, err)
	}
	deadline := time.After(stopTimeout)
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for !isStopped(pid) {
		select {
		case <-look.C:
		case <-deadline:
			return errors.Join(fmt.Errorf("process %d did not pause within %s", pid, stopTimeout), syscall.Kill(pid, syscall.SIGCONT))
		}
	}
	return nil
}

func (e *Environment) etcd() (pid int, err error) {
	return child("etcd", "--data-dir="+e.envtest.ControlPlane.Etcd.DataDir)
}

// kill kills a child, and returns when it has ended: until then it has its port.
func kill(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	const patience, poll = time.Minute, 5 * time.Millisecond
	for end := time.Now().Add(patience); time.Now().Before(end); <-time.After(poll) {
		if _, err := os.Stat(fmt.Sprint("/proc/", pid)); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	return fmt.Errorf("process %d was killed and has not ended in %s", pid, patience)
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
			continue // The process is another one, or has ended meanwhile.
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && parent(pid) == os.Getpid() {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("this process has no child %s", program)
}

// isStopped reports whether a signal has stopped every thread of the process.
func isStopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*/stat", pid)) // The pattern is well formed.
	for _, path := range threads {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // The thread has ended.
		}
		// The program's name, in parentheses, may contain any character.
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
	// The program's name, in parentheses, may contain any character.
	_, rest, _ := strings.Cut(string(content), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 2 || fields[0] == "Z" {
		return 0
	}
	number, _ := strconv.Atoi(fields[1]) // The kernel always writes a number.
	return number
}
