package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// A process is one component of the cluster.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	// exited is closed when the process has ended; state is set before.
	exited chan struct{}
	state  *os.ProcessState
}

// exitError says that a component ended without being asked to.
type exitError struct {
	name, log string
	state     *os.ProcessState
}

func (e *exitError) Error() string {
	message := fmt.Sprintf("%s ended unexpectedly (%s); its log is %s", e.name, e.state, e.log)
	if end := tail(e.log, logTail); end != "" {
		message += " and ends:\n" + end
	}
	return message
}

// spawn starts a process in the folder, with its output in the log. The process inherits the
// extra file, if any. On Linux it dies with the calling thread.
func spawn(name, folder, log string, inherited *os.File, path string, args ...string) (*process, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, err)
	}
	// The child has its own handle.
	defer func() { _ = output.Close() }()

	cmd := exec.Command(path, args...)
	cmd.Dir = folder
	cmd.Stdout = output
	cmd.Stderr = output
	cmd.SysProcAttr = childAttributes()
	if inherited != nil {
		cmd.ExtraFiles = []*os.File{inherited}
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}

	p := &process{name: name, log: log, cmd: cmd, exited: make(chan struct{})}
	go func() {
		defer close(p.exited)
		// The error repeats the state.
		_ = cmd.Wait()
		p.state = cmd.ProcessState
	}()
	return p, nil
}

// stop ends the process with SIGTERM and, when the grace period is over or hurry is closed,
// with SIGKILL. It returns when the process has ended, and reports whether the grace period
// was too short.
func (p *process) stop(grace time.Duration, hurry <-chan struct{}) (overdue bool) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	// A signal to an ended process does no harm: os.Process never signals another process
	// with the same number.
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		return false
	case <-hurry:
	case <-timer.C:
		overdue = true
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
	return overdue
}

// logTail and backgroundTail are how many lines an error contains: of a component's log, and
// of the output of a cluster in the background, which may contain the former.
const (
	logTail        = 8
	backgroundTail = 24
	// longestTail bounds both, in bytes.
	longestTail = 8192
)

// tail returns the last lines of a file, indented, or nothing if it cannot be read.
func tail(path string, lines int) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()

	if info, err := file.Stat(); err == nil && info.Size() > longestTail {
		_, _ = file.Seek(-longestTail, io.SeekEnd)
	}
	text, _ := io.ReadAll(io.LimitReader(file, longestTail))
	trimmed := strings.TrimSpace(string(text))
	if trimmed == "" {
		return ""
	}
	all := strings.Split(trimmed, "\n")
	last := all[max(0, len(all)-lines):]
	return "  " + strings.Join(last, "\n  ")
}
