package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// stopTimeout is longer than the grace periods of all components together.
	stopTimeout = 30 * time.Second
	// killTimeout bounds the work of the kernel after a SIGKILL.
	killTimeout = 5 * time.Second

	stopInBackground = `"make dev-down"`
)

// errEnded says that the cluster ended before it was ready.
var errEnded = errors.New("the development cluster ended before it was ready")

// up starts a cluster unless one with these options runs, and returns when it is ready.
func up(opts options, out io.Writer) error {
	ctx, _ := stopSignals()
	dir := stateDir(opts.dir)

	claim, err := dir.claim()
	if running, ok := errors.AsType[*runningError](err); ok {
		fmt.Fprintf(out, "A development cluster is already running (process %d)\n", running.pid)
		return awaitOther(ctx, opts, running.pid, out)
	}
	if err != nil {
		return err
	}
	// The claim proved that the folder is free. The process in the background claims it
	// again.
	_ = claim.Close()

	fmt.Fprintf(out, "Starting a development cluster in the background; it writes to %s\n", displayPath(dir.backgroundLog()))
	return startInBackground(ctx, opts, out)
}

// startInBackground starts a cluster and returns when it is ready. If it fails or the
// context ends, no process of the cluster is left.
func startInBackground(ctx context.Context, opts options, out io.Writer) error {
	dir := stateDir(opts.dir)
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(dir.backgroundLog(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()

	cmd := exec.Command(executable, append([]string{"run"}, opts.flags...)...)
	cmd.Stdout = log
	cmd.Stderr = log
	// A session of its own outlives the terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait()
	}()

	a, err := awaitAnnouncement(ctx, dir, cmd.Process.Pid, func() (bool, error) {
		select {
		case <-exited:
			return true, nil
		default:
			return false, nil
		}
	})
	if err != nil {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-exited
		if errors.Is(err, errStopped) {
			return errors.New("interrupted before the cluster was ready; no process of it is left")
		}
		if errors.Is(err, errEnded) {
			return fmt.Errorf("%w; it wrote to %s:\n%s", err, dir.backgroundLog(), tail(dir.backgroundLog(), backgroundTail))
		}
		return err
	}
	a.print(out, stopInBackground)
	return nil
}

// awaitOther returns when the cluster of another process is ready. It fails if that cluster
// has other options.
func awaitOther(ctx context.Context, opts options, pid int, out io.Writer) error {
	dir := stateDir(opts.dir)
	a, err := awaitAnnouncement(ctx, dir, pid, func() (bool, error) {
		_, running, err := dir.holder()
		return !running, err
	})
	if err != nil {
		return err
	}
	var found []string
	wanted := opts.chosen()
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if a.Options[name] != wanted[name] {
			found = append(found, fmt.Sprintf("%s is %q, not %q", name, a.Options[name], wanted[name]))
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("it runs with other options: %s; end it with %s first", strings.Join(found, ", "), stopInBackground)
	}
	a.print(out, stopInBackground)
	return nil
}

// awaitAnnouncement returns the announcement of the process, or errEnded. It waits as long
// as the process runs: the start has its own time limits.
func awaitAnnouncement(ctx context.Context, dir stateDir, pid int, gone func() (bool, error)) (announcement, error) {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for {
		ended, err := gone()
		if err != nil {
			return announcement{}, err
		}
		if ended {
			return announcement{}, errEnded
		}
		a, announced, err := readAnnouncement(dir, pid)
		if err != nil || announced {
			return a, err
		}
		select {
		case <-ctx.Done():
			return announcement{}, context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// down ends a cluster of run or up, and returns when all of its processes have ended.
func down(opts options, out io.Writer) error {
	dir := stateDir(opts.dir)
	pid, running, err := dir.holder()
	if err != nil {
		return err
	}
	if !running {
		fmt.Fprintf(out, "No development cluster is up in %s\n", displayPath(opts.dir))
		return nil
	}
	fmt.Fprintf(out, "Stopping the development cluster (process %d)\n", pid)
	for _, attempt := range []struct {
		signal  syscall.Signal
		timeout time.Duration
	}{
		{syscall.SIGTERM, stopTimeout},
		{syscall.SIGKILL, killTimeout},
	} {
		gone, err := endHolder(dir, attempt.signal, attempt.timeout)
		if gone || err != nil {
			return err
		}
	}
	return fmt.Errorf("processes of the cluster are still running: those that have %s open", dir.lock())
}

// endHolder signals the process that holds the folder. It reports whether this process and
// its children released the folder within the timeout.
func endHolder(dir stateDir, signal syscall.Signal, timeout time.Duration) (gone bool, err error) {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()

	target := 0
	for {
		pid, running, err := dir.holder()
		if err != nil {
			return false, err
		}
		// A new cluster in the same folder must not be ended.
		if !running || target != 0 && pid != target {
			return true, nil
		}
		if target == 0 && signalHolder(dir, pid, signal) {
			target = pid
		}
		select {
		case <-deadline.C:
			return false, nil
		case <-ticker.C:
		}
	}
}

// signalHolder signals the process if it holds the folder.
func signalHolder(dir stateDir, pid int, signal syscall.Signal) bool {
	process, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer func() { _ = process.Release() }()
	// The handle refers to one process for ever. If this process still holds the folder,
	// the handle did not catch another process with the same number.
	if again, running, err := dir.holder(); err != nil || !running || again != pid {
		return false
	}
	return process.Signal(signal) == nil
}
