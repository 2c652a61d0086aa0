package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

const (
	// helperVariable makes the test binary act as a supervised process instead of running
	// tests.
	helperVariable = "DEVCLUSTER_TEST_HELPER"
	helperFailed   = 3
)

// helpers get the last argument of the command line. Helpers that wait print a line first.
var helpers = map[string]func(argument string) error{
	"fail":      func(string) error { return errors.New("no such host") },
	"obey":      obeyHelper,
	"ignore":    ignoreHelper,
	"claim":     claimHelper,
	"supervise": superviseHelper,
}

func TestMain(m *testing.M) {
	helper, ok := helpers[os.Getenv(helperVariable)]
	if !ok {
		os.Exit(m.Run())
	}
	if err := helper(os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(helperFailed)
	}
}

// obeyHelper ends on SIGTERM. Before it ends, it appends the last element of the path to the
// file named by the rest of the path.
func obeyHelper(path string) error {
	awaitSIGTERM()
	file, err := os.OpenFile(filepath.Dir(path), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, filepath.Base(path))
	return errors.Join(err, file.Close())
}

// ignoreHelper ignores SIGTERM and must be killed.
func ignoreHelper(string) error {
	signal.Ignore(syscall.SIGTERM)
	fmt.Println("ready")
	select {}
}

// claimHelper holds a state folder until SIGTERM.
func claimHelper(dir string) error {
	claim, err := stateDir(dir).claim()
	if err != nil {
		return err
	}
	awaitSIGTERM()
	return claim.Close()
}

// superviseHelper claims a state folder and supervises another helper until it is killed.
func superviseHelper(dir string) error {
	claim, err := stateDir(dir).claim()
	if err != nil {
		return err
	}
	s, ctx := newSupervisor(context.Background(), stateDir(dir), claim)
	err = errors.Join(
		stateDir(dir).reset(),
		os.Setenv(helperVariable, "ignore"),
		s.start("child", os.Args[0]),
	)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func awaitSIGTERM() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	fmt.Println("ready")
	<-signals
}
