//go:build linux

package supervise

import (
	"bufio"
	"errors"
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

// testClock goes on when a test says so, by as much as a machine was suspended.
type testClock struct {
	mu     sync.Mutex
	now    time.Duration
	timers []*testTimer
}

func (c *testClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *testClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += d
	for _, timer := range c.timers {
		timer.fire()
	}
}

func (c *testClock) NewTimer() Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	timer := &testTimer{clock: c, c: make(chan struct{}, 1), at: 1 << 62}
	c.timers = append(c.timers, timer)
	return timer
}

type testTimer struct {
	clock *testClock
	c     chan struct{}
	at    time.Duration
}

func (t *testTimer) fire() {
	if t.clock.now < t.at {
		return
	}
	t.at = 1 << 62
	select {
	case t.c <- struct{}{}:
	default:
	}
}

func (t *testTimer) Set(at time.Duration) {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.at = at
	t.fire()
}

func (t *testTimer) C() <-chan struct{} { return t.c }

func (t *testTimer) Close() {}

// supervised is a command that a Supervisor of the test process runs.
type supervised struct {
	t     *testing.T
	clock *testClock
	hold  *testHold
	// stages are those that the command was told of.
	stages chan Stage
	// leftover gets a value when descendants outlive the command.
	leftover chan struct{}
	lines    *bufio.Reader
	output   *os.File
	result   chan Outcome
}

const (
	testTTL   = 30 * time.Second
	testGrace = 5 * time.Second
	// testMargin is that of NewPolicy for testTTL.
	testMargin = 2 * time.Second
)

// supervise runs a shell script, with a hold of testTTL from now.
func superviseScript(t *testing.T, onLost OnLost, script string) *supervised {
	t.Helper()
	policy, err := NewPolicy(onLost, testTTL, testGrace)
	if err != nil {
		t.Fatal(err)
	}
	output, input, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	clock := &testClock{now: time.Hour}
	s := &supervised{
		t: t, clock: clock, hold: &testHold{clock: clock, lost: make(chan struct{})},
		stages: make(chan Stage, 10), leftover: make(chan struct{}, 1), lines: bufio.NewReader(output), output: output, result: make(chan Outcome, 1),
	}
	s.hold.prolong(testTTL)
	supervisor, err := Attach(clock)
	if err != nil {
		t.Fatal(err)
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		outcome, err := supervisor.Run(Command{
			Path: "/bin/sh", Args: []string{"sh", "-c", "exec >/proc/self/fd/$OUT\n" + script}, Env: append(os.Environ(), "OUT="+inherited(input)),
		}, s.hold, policy, Events{
			Stopping: func(stage Stage, _ error) { s.stages <- stage },
			Leftover: func(int) { s.leftover <- struct{}{} },
		})
		if err != nil {
			t.Error(err)
		}
		_ = input.Close()
		s.result <- outcome
	}()
	t.Cleanup(func() {
		<-finished
		_ = supervisor.Close()
		_ = output.Close()
	})
	return s
}

// inherited has children inherit a file, and returns its descriptor.
func inherited(file *os.File) string {
	descriptor := file.Fd()
	_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, descriptor, syscall.F_SETFD, 0)
	return strconv.Itoa(int(descriptor))
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

// wantStage waits until the command is told of the stage.
func (s *supervised) wantStage(want Stage) {
	s.t.Helper()
	select {
	case stage := <-s.stages:
		if stage != want {
			s.t.Errorf("stage %d, want %d", stage, want)
		}
	case <-time.After(patience):
		s.t.Fatalf("no stage, want %d", want)
	}
}

// wantEnd waits for the end of all processes.
func (s *supervised) wantEnd(want Outcome) {
	s.t.Helper()
	select {
	case outcome := <-s.result:
		if outcome != want {
			s.t.Errorf("outcome %+v, want %+v", outcome, want)
		}
	case <-time.After(patience):
		s.t.Fatal("the run has not ended")
	}
	_ = s.output.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, s.lines); err != nil {
		s.t.Errorf("a process is left: %v", err)
	}
}

// running is a program of three processes.
type running struct {
	t      *testing.T
	front  *exec.Cmd
	stdin  io.WriteCloser
	output *os.File
	lines  *bufio.Reader
	errors *strings.Builder
}

// start starts the program in front of the command. Environment variables come first.
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
	r.front = exec.CommandContext(t.Context(), os.Args[0], command...)
	r.front.Env = append(append(os.Environ(), roleVariable+"="+roleProgram), environment...)
	r.front.Stdout, r.front.Stderr = input, r.errors
	r.front.WaitDelay = patience
	// The front stops its process group.
	r.front.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	configure(r.front)
	if r.front.Stdin == nil {
		if r.stdin, err = r.front.StdinPipe(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.front.Start(); err != nil {
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

// pids reads a line of process numbers behind a word.
func (r *running) pids() []int {
	r.t.Helper()
	var pids []int
	for _, field := range r.line()[1:] {
		pid, err := strconv.Atoi(field)
		if err != nil {
			r.t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// wantStatus waits for the front, and for texts on stderr.
func (r *running) wantStatus(want int, texts ...string) {
	r.t.Helper()
	err := r.front.Wait()
	status := r.front.ProcessState.ExitCode()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		if ws, ok := failed.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			status = -int(ws.Signal())
		}
	}
	if status != want {
		r.t.Errorf("exit status %d, want %d; stderr: %s", status, want, r.errors)
	}
	for _, text := range texts {
		if !strings.Contains(r.errors.String(), text) {
			r.t.Errorf("stderr has no %q: %s", text, r.errors)
		}
	}
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

func replaceFIFO(script, path string) string { return strings.ReplaceAll(script, "<FIFO", "<"+path) }

// wantNothingLeftButFront waits until the supervisor has ended, while the front is stopped.
func (r *running) wantNothingLeftButFront() {
	r.t.Helper()
	lookUntil(r.t, "the end of the supervisor", func() bool {
		children := childrenOf(r.front.Process.Pid)
		if len(children) != 1 {
			return false
		}
		child, ok := readProcess(children[0])
		return ok && child.isZombie
	})
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
