package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Names of programs whose processor time is measured.
const (
	apiServerProgram = "kube-apiserver"
	etcdProgram      = "etcd"
	operatorProgram  = "lock-operator"
	// clientProgram stands for this process, which runs the clients.
	clientProgram = "bench"
)

// raiseFileLimit lets this process and its children open as many files as the system allows. Every blocked caller needs a
// connection.
func raiseFileLimit() {
	var limit unix.Rlimit
	check(unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	limit.Cur = limit.Max
	check(unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
}

// cpuTime returns the processor time of a process so far. /proc has it, too, but in ticks of 10 ms, which are too long for
// a turn.
func cpuTime(pid int) time.Duration {
	// As clock_getcpuclockid(3) makes it: the clock of the processor time of a whole process.
	const wholeProcess = 2
	var at unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|wholeProcess), &at); err != nil {
		check(fmt.Errorf("read the processor time of process %d: %w", pid, err))
	}
	return time.Duration(at.Nano())
}

// cpuTimes returns the processor times of processes so far, by program.
func cpuTimes(pids map[string]int) map[string]time.Duration {
	times := map[string]time.Duration{}
	for program, pid := range pids {
		times[program] = cpuTime(pid)
	}
	return times
}

// Names of the resident memory of a process, and of the largest so far.
const (
	resident     = "VmRSS:"
	peakResident = "VmHWM:"
)

// kibibytes returns a size of a process.
func kibibytes(pid int, name string) float64 {
	path := fmt.Sprintf("/proc/%d/status", pid)
	for line := range strings.Lines(string(must(os.ReadFile(path)))) {
		if value, ok := strings.CutPrefix(line, name); ok {
			return must(strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64))
		}
	}
	check(errors.New(path + " has no " + name))
	return 0
}

// waitUntil waits until the time, or until ctx ends.
func waitUntil(ctx context.Context, at time.Time) error {
	left := time.Until(at)
	if left <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// awaitIdle returns when each of the processes has used next to no processor for a while.
func awaitIdle(ctx context.Context, pids ...int) {
	const idleAt, idleFor = 0.15, 2 * time.Second
	for _, pid := range pids {
		for isIdle := false; !isIdle; {
			before := cpuTime(pid)
			check(waitUntil(ctx, time.Now().Add(idleFor)))
			isIdle = float64(cpuTime(pid)-before) < idleAt*float64(idleFor)
		}
	}
}
