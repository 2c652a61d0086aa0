package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTick is the unit of times in /proc, which is the same on every Linux.
const clockTick = 10 * time.Millisecond

// raiseFileLimit lets this process and its children open as many files as the system
// allows. Every blocked caller needs a connection.
func raiseFileLimit() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raise the limit of open files: %w", err)
	}
	return nil
}

// pid returns the cluster's process of the program.
func (c *cluster) pid(program string) (int, error) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	for _, path := range lines {
		content, _ := os.ReadFile(path) // an ended process has no such file
		name, _, _ := strings.Cut(string(content), "\x00")
		process := filepath.Dir(path)
		dir, _ := os.Readlink(filepath.Join(process, "cwd"))
		if filepath.Base(name) == program && dir == c.workingDir() {
			return strconv.Atoi(filepath.Base(process))
		}
	}
	return 0, fmt.Errorf("no process runs %s", program)
}

// cpuTime returns the processor time of a process so far.
func cpuTime(pid int) (time.Duration, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name of the program, in parentheses, may contain any character.
	end := strings.LastIndexByte(string(content), ')')
	fields := strings.Fields(string(content[end+1:]))
	const userField, systemField = 11, 12
	if len(fields) <= systemField {
		return 0, errors.New("/proc has too few fields")
	}
	var ticks int64
	for _, field := range []string{fields[userField], fields[systemField]} {
		value, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += value
	}
	return time.Duration(ticks) * clockTick, nil
}

// residentBytes returns the resident memory of a process.
func residentBytes(pid int) (int64, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(content)) {
		value, ok := strings.CutPrefix(line, "VmRSS:")
		if !ok {
			continue
		}
		kibibytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		return kibibytes << 10, err
	}
	return 0, errors.New("/proc has no VmRSS")
}
