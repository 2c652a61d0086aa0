//go:build linux

package supervise

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds what a test waits for.
const patience = 30 * time.Second

// testHold is a hold whose end a test sets.
type testHold struct {
	clock Clock
	lost  chan struct{}

	mu  sync.Mutex
	end time.Duration
}

func (h *testHold) prolong(ttl time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end = h.clock.Now() + ttl
}

func (h *testHold) lose() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end = h.clock.Now()
	close(h.lost)
}

func (h *testHold) Left() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.end - h.clock.Now()
}

func (h *testHold) Done() <-chan struct{} { return h.lost }

// testClock is that of the machine, and goes on by more when a test says so, as while the machine is suspended.
type testClock struct {
	mu     sync.Mutex
	ahead  time.Duration
	timers map[*time.Timer]time.Duration
}

func newTestClock() *testClock { return &testClock{timers: map[*time.Timer]time.Duration{}} }

func (c *testClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now() + c.ahead
}

func (c *testClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
	for timer, at := range c.timers {
		timer.Reset(max(0, at-now()-c.ahead))
	}
}

func (c *testClock) At(at time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	timer := time.NewTimer(max(0, at-now()-c.ahead))
	c.timers[timer] = at
	return timer.C
}

// supervised is a command that a Supervisor of the test process runs.
type supervised struct {
	t     *testing.T
	clock *testClock
	hold  *testHold
	// stops are those that were reported.
	stops         chan stop
	lines         *bufio.Reader
	output, input *os.File
	result        chan Outcome
}

// stop is what is reported of one.
type stop struct {
	stage Stage
	cause error
}

const (
	testTTL   = time.Hour
	testGrace = 10 * time.Minute
	// testMargin is that of NewPolicy for testTTL.
	testMargin = maxMargin
)

// superviseScript runs a shell script, with a hold of testTTL from now.
func superviseScript(t *testing.T, onLost OnLost, script string) *supervised {
	t.Helper()
	return superviseWithGrace(t, onLost, testGrace, script)
}

func superviseWithGrace(t *testing.T, onLost OnLost, grace time.Duration, script string) *supervised {
	t.Helper()
	policy, err := NewPolicy(onLost, testTTL, grace)
	if err != nil {
		t.Fatal(err)
	}
	output, input, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	clock := newTestClock()
	s := &supervised{
		t: t, clock: clock, hold: newTestHold(clock), stops: make(chan stop, 10), result: make(chan Outcome, 1),
		lines: bufio.NewReader(output), output: output, input: input,
	}
	script = fmt.Sprintf("exec >/proc/%d/fd/%d\n%s", os.Getpid(), input.Fd(), script) // The watcher must not have it.
	supervisor := newTestSupervisor(clock)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		command := Command{Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: os.Environ()}
		outcome, err := supervisor.Run(command, s.hold, policy, func(stage Stage, cause error) { s.stops <- stop{stage, cause} })
		if err != nil {
			t.Error(err)
		}
		s.result <- outcome
	}()
	t.Cleanup(func() {
		<-finished
		supervisor.Close()
		_, _ = output.Close(), input.Close()
	})
	return s
}

// newTestSupervisor returns one without a terminal: that of the test must not be stopped.
func newTestSupervisor(clock Clock) *Supervisor {
	s := New(clock)
	s.terminal = nil
	return s
}

func newTestHold(clock Clock) *testHold {
	hold := &testHold{clock: clock, lost: make(chan struct{})}
	hold.prolong(testTTL)
	return hold
}

// wantLine waits for a line of the command.
func (s *supervised) wantLine(want string) {
	s.t.Helper()
	_ = s.output.SetReadDeadline(time.Now().Add(patience))
	line, err := s.lines.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != want {
		s.t.Fatalf("read %q, %v; want %q", line, err, want)
	}
}

// wantStop waits until the stop is reported.
func (s *supervised) wantStop(stage Stage, cause error) {
	s.t.Helper()
	select {
	case got := <-s.stops:
		if want := (stop{stage, cause}); got != want {
			s.t.Errorf("stop %+v, want %+v", got, want)
		}
	case <-time.After(patience):
		s.t.Fatalf("no stop, want stage %d", stage)
	}
}

// wantEnd waits for the end of all processes. A status of -1 is any.
func (s *supervised) wantEnd(want Outcome) {
	s.t.Helper()
	select {
	case outcome := <-s.result:
		if want.Status < 0 {
			want.Status = outcome.Status
		}
		if outcome != want {
			s.t.Errorf("outcome %+v, want %+v", outcome, want)
		}
	case <-time.After(patience):
		s.t.Fatal("the run has not ended")
	}
	s.wantNothingLeft()
}

// wantNothingLeft waits until the last process has closed its output. The command must have opened it.
func (s *supervised) wantNothingLeft() {
	s.t.Helper()
	_ = s.input.Close()
	_ = s.output.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, s.lines); err != nil {
		s.t.Errorf("a process is left: %v", err)
	}
}

// running is this program with a command and a watcher.
type running struct {
	t       *testing.T
	program *exec.Cmd
	stdin   io.WriteCloser
	output  *os.File
	lines   *bufio.Reader
	errors  *strings.Builder
}

// start starts the program with the command. Environment variables come first.
func start(t *testing.T, environment []string, command ...string) *running {
	t.Helper()
	return startWith(t, environment, func(*exec.Cmd) {}, command...)
}

func startWith(t *testing.T, environment []string, configure func(*exec.Cmd), command ...string) *running {
	t.Helper()
	output, input, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, output: output, lines: bufio.NewReader(output), errors: new(strings.Builder)}
	r.program = exec.CommandContext(t.Context(), os.Args[0], command...)
	r.program.Env = append(append(os.Environ(), roleVariable+"="+roleProgram), environment...)
	r.program.Stdout, r.program.Stderr = input, r.errors
	r.program.WaitDelay = patience
	// The program stops its process group.
	r.program.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	configure(r.program)
	if r.program.Stdin == nil {
		if r.stdin, err = r.program.StdinPipe(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.program.Start(); err != nil {
		t.Fatal(err)
	}
	_ = input.Close()
	t.Cleanup(func() { _ = output.Close() })
	return r
}

// line returns the words of the next line.
func (r *running) line() []string {
	r.t.Helper()
	_ = r.output.SetReadDeadline(time.Now().Add(patience))
	line, err := r.lines.ReadString('\n')
	if err != nil {
		r.t.Fatalf("read %q, %v; stderr: %s", line, err, r.errors)
	}
	return strings.Fields(line)
}

// pid reads a line of a word and a process number.
func (r *running) pid() int {
	r.t.Helper()
	pid, err := strconv.Atoi(r.line()[1])
	if err != nil {
		r.t.Fatal(err)
	}
	return pid
}

func (r *running) wantStatus(want int) {
	r.t.Helper()
	_ = r.program.Wait()
	if status := exitStatus(r.program); status != want {
		r.t.Errorf("exit status %d, want %d; stderr: %s", status, want, r.errors)
	}
}

// exitStatus is minus the signal if one has ended the process.
func exitStatus(process *exec.Cmd) int {
	if ended, ok := process.ProcessState.Sys().(syscall.WaitStatus); ok && ended.Signaled() {
		return -int(ended.Signal())
	}
	return process.ProcessState.ExitCode()
}

// wantNothingLeft waits until the last process has closed its output.
func (r *running) wantNothingLeft() {
	r.t.Helper()
	_ = r.output.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, r.lines); err != nil {
		r.t.Errorf("a process is left: %v", err)
	}
}

func kill(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatalf("send %s to %d: %v", s, pid, err)
	}
}

// lookUntil looks again without a pause until there is what a test waits for: no event tells.
func lookUntil(t *testing.T, what string, isThere func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !isThere(); {
		if time.Now().After(end) {
			t.Fatalf("waited %s in vain for %s", patience, what)
		}
	}
}
