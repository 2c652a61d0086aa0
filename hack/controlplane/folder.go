package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lockPoll is how often a build that waits for another one looks again. The lock
// is not waited for in the kernel because that wait could not be interrupted.
const lockPoll = 200 * time.Millisecond

// beside names a companion of the folder in the same parent, so that renaming
// one to the other is atomic. The dot keeps "go list ./..." out of it.
func beside(folder, suffix string) string {
	return filepath.Join(filepath.Dir(folder), "."+filepath.Base(folder)+"."+suffix)
}

// lockBeside lets one build at a time fill the folder: two of them would compile
// the same packages twice. The kernel drops the lock of a build that dies.
func lockBeside(ctx context.Context, folder string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(beside(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for announced := false; ; announced = true {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("locking %s: %w", file.Name(), err), file.Close())
		}
		if !announced {
			fmt.Println("control-plane: waiting for another build of the same folder")
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), file.Close())
		case <-time.After(lockPoll):
		}
	}
}

// linkReadyMade links the binaries that envtest has.
func linkReadyMade(folder, readyMade string) error {
	absolute, err := filepath.Abs(readyMade)
	if err != nil {
		return err
	}
	for _, name := range envtestBinaries {
		if err := os.Symlink(filepath.Join(absolute, name), filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	return nil
}

// replaceFolder puts the finished folder in the place of the old one. A process that
// dies in between leaves no folder at all: a half set is never in place.
func replaceFolder(folder, finished string) error {
	outdated := beside(folder, "outdated")
	if err := os.RemoveAll(outdated); err != nil {
		return err
	}
	if err := os.Rename(folder, outdated); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(finished, folder); err != nil {
		return err
	}
	return os.RemoveAll(outdated)
}
