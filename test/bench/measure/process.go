package measure

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// RaiseFileLimit lets this process and its children open as many files as the system
// allows. Every blocked caller needs a connection.
func RaiseFileLimit() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raise the limit of open files: %w", err)
	}
	return nil
}

// CPUTime returns the processor time of a process so far. /proc has it, too, but in ticks of 10 ms, which are too long
// for a turn.
func CPUTime(pid int) (time.Duration, error) {
	// As clock_getcpuclockid(3) makes it: the clock of the processor time of a whole process.
	const wholeProcess = 2
	var at unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|wholeProcess), &at); err != nil {
		return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	return time.Duration(at.Nano()), nil
}

// ResidentBytes returns the resident memory of a process.
func ResidentBytes(pid int) (int64, error) {
	return kibibytes(fmt.Sprintf("/proc/%d/status", pid), "VmRSS:")
}

// AvailableBytes returns the memory that processes can still take.
func AvailableBytes() (int64, error) { return kibibytes("/proc/meminfo", "MemAvailable:") }

// TotalBytes returns the memory of the machine.
func TotalBytes() (int64, error) { return kibibytes("/proc/meminfo", "MemTotal:") }

// PeakBytes returns the largest resident memory that a process had so far.
func PeakBytes(pid int) (int64, error) {
	return kibibytes(fmt.Sprintf("/proc/%d/status", pid), "VmHWM:")
}

// kibibytes returns the size behind the name in a file of /proc.
func kibibytes(path, name string) (int64, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(content)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			size, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return size << 10, err
		}
	}
	return 0, errors.New(path + " has no " + name)
}
