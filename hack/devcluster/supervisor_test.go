package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestUnexpectedEndIsReported(t *testing.T) {
	s, ctx := testSupervisor(t)
	startHelper(t, s, "fail", "etcd", "")

	<-ctx.Done()
	err := context.Cause(ctx)
	ended, ok := errors.AsType[*exitError](err)
	if !ok {
		t.Fatalf("cause = %v, want an exitError", err)
	}
	for _, want := range []string{"etcd ended unexpectedly", "exit status 3", s.dir.log("etcd"), "no such host"} {
		if !strings.Contains(ended.Error(), want) {
			t.Errorf("error = %q, want one with %q", ended, want)
		}
	}
}

func TestLastStartedIsStoppedFirst(t *testing.T) {
	s, ctx := testSupervisor(t)
	order := filepath.Join(t.TempDir(), "order")
	for _, name := range []string{"etcd", "kube-apiserver", "lock-operator"} {
		startHelper(t, s, "obey", name, filepath.Join(order, name))
		awaitReady(t, s.dir.log(name))
	}
	s.stop(io.Discard, nil)

	got, err := os.ReadFile(order)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("lock-operator\nkube-apiserver\netcd\n", string(got)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if ctx.Err() != nil {
		t.Errorf("a stop counts as a failure: %v", context.Cause(ctx))
	}
}

func TestHurryKillsProcessesThatIgnoreSIGTERM(t *testing.T) {
	s, _ := testSupervisor(t)
	startHelper(t, s, "ignore", "etcd", "")
	awaitReady(t, s.dir.log("etcd"))

	hurry := make(chan struct{})
	close(hurry)
	s.stop(io.Discard, hurry)
	if state := s.processes[0].state; state == nil || state.String() != "signal: killed" {
		t.Errorf("state = %v, want that of a killed process", state)
	}
}

func TestProcessIsKilledAfterTheGracePeriod(t *testing.T) {
	s, _ := testSupervisor(t)
	startHelper(t, s, "ignore", "etcd", "")
	awaitReady(t, s.dir.log("etcd"))

	if overdue := s.processes[0].stop(time.Millisecond, nil); !overdue {
		t.Error("the process ended in time although it ignores SIGTERM")
	}
}

// testSupervisor returns a supervisor of an empty state folder. The end of the test kills
// its remaining processes.
func testSupervisor(t *testing.T) (*supervisor, context.Context) {
	t.Helper()
	dir := stateDir(t.TempDir())
	claim, err := dir.claim()
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.reset(); err != nil {
		t.Fatal(err)
	}
	s, ctx := newSupervisor(t.Context(), dir, claim)
	t.Cleanup(func() {
		for _, p := range s.processes {
			_ = p.cmd.Process.Kill()
			<-p.exited
		}
		_ = claim.Close()
	})
	return s, ctx
}

// startHelper supervises a helper under the name of a component.
func startHelper(t *testing.T, s *supervisor, helper, name, argument string) {
	t.Helper()
	t.Setenv(helperVariable, helper)
	if err := s.start(name, os.Args[0], argument); err != nil {
		t.Fatal(err)
	}
}

// runHelper starts a helper as a child of the test.
func runHelper(t *testing.T, helper, argument string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], argument)
	cmd.Env = append(os.Environ(), helperVariable+"="+helper)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	return cmd
}

// awaitReady waits until a helper has written to its log that it is ready.
func awaitReady(t *testing.T, log string) {
	t.Helper()
	if err := waitFor(t.Context(), log, func(context.Context) error {
		text, err := os.ReadFile(log)
		if err == nil && !bytes.Contains(text, []byte("ready\n")) {
			err = errors.New("the helper is not ready")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// awaitFree waits until no process holds the state folder.
func awaitFree(t *testing.T, dir stateDir) {
	t.Helper()
	if err := waitFor(t.Context(), string(dir), func(context.Context) error {
		_, held, err := dir.holder()
		if held {
			err = errors.New("a process holds it")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
