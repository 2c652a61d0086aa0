//go:build linux

// Package run_test runs commands by "kubectl lock run" against a façade, with processes as users have them.
package run_test

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// programVariable makes the test binary kubectl-lock.
const programVariable = "RUN_TEST_PROGRAM"

const (
	namespace = "default"
	key       = "backup"
	fullKey   = v1alpha1.FullKey("lock:backup")
	// patience bounds what a test waits for.
	patience = time.Minute
)

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) == "" {
		// kubectl-lock would ignore what nohup, or a shell for its background, has this process ignore.
		for _, ignored := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
			if signal.Ignored(ignored) {
				signal.Notify(make(chan os.Signal, 1), ignored)
			}
		}
		os.Exit(m.Run())
	}
	os.Exit(cli.Main(context.Background(), os.Args[1:], session.Options{
		Streams: genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
		Clock:   clock.RealClock{},
		Getenv:  os.Getenv,
	}))
}

// service is a façade on locks in memory.
type service struct {
	*locktest.Backend

	url string
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{Backend: locktest.New(locktest.WithHolder("alice"))}
	handler, err := testfacade.New(testfacade.Settings{Locks: s, Namespace: namespace, Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.Handler(handler))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// started is a run of kubectl-lock.
type started struct {
	t       *testing.T
	program *exec.Cmd
	runtime string
	output  *os.File
	lines   *bufio.Reader
	errors  *bytes.Buffer
}

// start runs "kubectl lock run" with the arguments.
func (s *service) start(t *testing.T, arguments ...string) *started {
	t.Helper()
	output, input, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r := &started{t: t, runtime: t.TempDir(), output: output, lines: bufio.NewReader(output), errors: new(bytes.Buffer)}
	r.program = exec.CommandContext(t.Context(), os.Args[0], append([]string{"run", "--server", s.url}, arguments...)...)
	r.program.Env = append(os.Environ(), programVariable+"=1", "XDG_RUNTIME_DIR="+r.runtime)
	r.program.Stdout, r.program.Stderr = input, r.errors
	r.program.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r.program.WaitDelay = patience
	if err := r.program.Start(); err != nil {
		t.Fatal(err)
	}
	_ = input.Close()
	t.Cleanup(func() { _ = output.Close() })
	return r
}

// line returns the words of the next line.
func (r *started) line() []string {
	r.t.Helper()
	_ = r.output.SetReadDeadline(time.Now().Add(patience))
	line, err := r.lines.ReadString('\n')
	if err != nil {
		_ = r.program.Process.Kill()
		_ = r.program.Wait()
		r.t.Fatalf("read %q, %v; stderr: %s", line, err, r.errors)
	}
	return strings.Fields(line)
}

// pids returns the numbers of the next line.
func (r *started) pids() []int {
	r.t.Helper()
	var pids []int
	for _, word := range r.line() {
		pid, err := strconv.Atoi(word)
		if err != nil {
			r.t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// watcher returns the number of the watcher.
func (r *started) watcher() (pid int) {
	r.t.Helper()
	for end := time.Now().Add(patience); pid == 0; {
		output, _ := exec.CommandContext(r.t.Context(), "pgrep", "-x", "-P", strconv.Itoa(r.program.Process.Pid), "lock-watcher").Output()
		pid, _ = strconv.Atoi(strings.TrimSpace(string(output)))
		if time.Now().After(end) {
			r.t.Fatal("there is no watcher")
		}
	}
	return pid
}

// end waits for all processes, and returns the exit status; minus the signal if one has ended the program.
func (r *started) end() int {
	r.t.Helper()
	_ = r.output.SetReadDeadline(time.Now().Add(patience))
	if _, err := r.lines.WriteTo(new(bytes.Buffer)); err != nil {
		r.t.Errorf("a process is left: %v", err)
	}
	_ = r.program.Wait()
	if status, ok := r.program.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return -int(status.Signal())
	}
	return r.program.ProcessState.ExitCode()
}

func (r *started) wantEnd(want int, texts ...string) {
	r.t.Helper()
	if got := r.end(); got != want {
		r.t.Errorf("exit status %d, want %d; stderr: %s", got, want, r.errors)
	}
	for _, text := range texts {
		if !strings.Contains(r.errors.String(), text) {
			r.t.Errorf("stderr has no %q: %s", text, r.errors)
		}
	}
	r.wantNoScratch()
}

// wantNoScratch checks that nothing of the token is left.
func (r *started) wantNoScratch() {
	r.t.Helper()
	if left, _ := filepath.Glob(filepath.Join(r.runtime, "*")); len(left) > 0 {
		r.t.Errorf("%q were left", left)
	}
}

// waitForNoScratch is wantNoScratch where the watcher removes it.
func (r *started) waitForNoScratch() {
	r.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); <-time.After(10 * time.Millisecond) {
		if left, _ := filepath.Glob(filepath.Join(r.runtime, "*")); len(left) == 0 {
			return
		}
	}
	r.wantNoScratch()
}

func (s *service) wantFree(t *testing.T) {
	t.Helper()
	if found := s.All(); len(found) > 0 {
		t.Errorf("%d locks are held", len(found))
	}
}

func kill(t *testing.T, pid int, with syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, with); err != nil {
		t.Fatalf("send %s to %d: %v", with, pid, err)
	}
}

func itoa(number int64) string { return strconv.FormatInt(number, 10) }

// hookWaiting sends when an acquisition begins to wait.
func hookWaiting(waiting chan<- struct{}) locktest.Hooks {
	return locktest.Hooks{Waiting: func(context.Context, locktest.Call) error {
		waiting <- struct{}{}
		return nil
	}}
}

// failRenewals has some renewals go unanswered, and closes the channel at the first one that is not.
func failRenewals(count int32, renewed chan<- struct{}) locktest.Hooks {
	var seen atomic.Int32
	return locktest.Hooks{Before: func(_ context.Context, call locktest.Call) error {
		if call.Verb != locktest.Renew {
			return nil
		}
		switch n := seen.Add(1); {
		case n <= count:
			return lock.ErrUnavailable
		case n == count+1:
			close(renewed)
		}
		return nil
	}}
}
