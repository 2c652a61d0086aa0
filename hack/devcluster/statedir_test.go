package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestStateFolderHasOneOwner(t *testing.T) {
	dir := stateDir(filepath.Join(t.TempDir(), "state"))
	first, err := dir.claim()
	if err != nil {
		t.Fatal(err)
	}

	_, err = dir.claim()
	if running, ok := errors.AsType[*runningError](err); !ok || running.pid != os.Getpid() {
		t.Errorf("second claim: error = %v, want a runningError of process %d", err, os.Getpid())
	}
	if pid, held, err := dir.holder(); pid != os.Getpid() || !held || err != nil {
		t.Errorf("holder() = %d, %v, %v, want this process", pid, held, err)
	}

	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, held, err := dir.holder(); held || err != nil {
		t.Errorf("after the end: held = %v, error = %v", held, err)
	}
	again, err := dir.claim()
	if err != nil {
		t.Fatalf("claim after the end: %v", err)
	}
	_ = again.Close()
}

func TestStateFolderIsHeldByTheProcessThatInheritedTheClaim(t *testing.T) {
	s, _ := testSupervisor(t)
	startHelper(t, s, "ignore", "etcd", "")
	awaitReady(t, s.dir.log("etcd"))
	if err := s.claim.Close(); err != nil {
		t.Fatal(err)
	}
	if _, held, err := s.dir.holder(); !held || err != nil {
		t.Errorf("with a process left: held = %v, error = %v", held, err)
	}
	if err := s.processes[0].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitFree(t, s.dir)
}

func TestFolderWithForeignFilesIsRefused(t *testing.T) {
	folder := t.TempDir()
	touch(t, folder, 0o600, "thesis.txt")
	if _, err := stateDir(folder).claim(); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(filepath.Join(folder, lockName)); !errors.Is(err, os.ErrNotExist) {
		t.Error("claim wrote to the folder")
	}
}

func TestResetDeletesTheFilesOfAnEarlierCluster(t *testing.T) {
	dir := stateDir(t.TempDir())
	for range 2 {
		if err := dir.reset(); err != nil {
			t.Fatal(err)
		}
		touch(t, dir.pki(), 0o600, "old.key")
		touch(t, string(dir), 0o600, "kubeconfig", "cluster.json")
	}
	if err := dir.reset(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir.pki(), "old.key"), dir.kubeconfig(), dir.state()} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s still exists", path)
		}
	}
}
