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

// lockPoll is how often a waiting build tries the lock again. A wait in the kernel could not
// be interrupted.
const lockPoll = 200 * time.Millisecond

// beside returns a path in the same parent folder, which makes a rename between the two
// atomic. The dot keeps "go list ./..." out of it.
func beside(folder, suffix string) string {
	return filepath.Join(filepath.Dir(folder), "."+filepath.Base(folder)+"."+suffix)
}

// lockBeside lets one build at a time fill the folder: two would compile the same packages
// twice. The kernel releases the lock when the build dies.
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

// linkReadyMade links the binaries of envtest.
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

// replaceFolder replaces the old folder by the finished one. If the process dies in
// between, no folder is left: an incomplete set is never in place.
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
