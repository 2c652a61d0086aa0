package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// lockName is the file whose lock says that a cluster runs. The existence of the file says
// that the folder is a state folder.
const lockName = "devcluster.lock"

// A stateDir is the folder of one development cluster.
type stateDir string

func (d stateDir) kubeconfig() string { return filepath.Join(string(d), "kubeconfig") }
func (d stateDir) etcd() string       { return filepath.Join(string(d), "etcd") }
func (d stateDir) logs() string       { return filepath.Join(string(d), "logs") }
func (d stateDir) pki() string        { return filepath.Join(string(d), "pki") }
func (d stateDir) prometheus() string { return filepath.Join(string(d), "prometheus") }
func (d stateDir) state() string      { return filepath.Join(string(d), "cluster.json") }
func (d stateDir) lock() string       { return filepath.Join(string(d), lockName) }

// backgroundLog returns the path of the output of a cluster in the background.
func (d stateDir) backgroundLog() string { return filepath.Join(string(d), "run.log") }

func (d stateDir) log(component string) string {
	return filepath.Join(d.logs(), component+".log")
}

// componentKubeconfig returns the path of a component's kubeconfig.
func (d stateDir) componentKubeconfig(component string) string {
	return filepath.Join(d.pki(), component+".kubeconfig")
}

// runningError says that a cluster already uses the state folder.
type runningError struct {
	dir stateDir
	pid int
}

func (e *runningError) Error() string {
	return fmt.Sprintf("a development cluster already uses %s (process %d); end it with \"make dev-down\", "+
		"or give another folder with --dir", e.dir, e.pid)
}

// claim claims the folder for this process, creating it if necessary, or returns a
// runningError. The claim lasts until the returned file and all copies that children
// inherited are closed. So the folder is free when the last process of the cluster has
// ended, even if it was killed.
func (d stateDir) claim() (*os.File, error) {
	if err := d.requireOwn(); err != nil {
		return nil, err
	}
	// The folder contains private keys.
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, fmt.Errorf("creating the state folder: %w", err)
	}
	file, err := os.OpenFile(d.lock(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("claiming the state folder: %w", err)
	}
	if err := lockExclusively(file); err != nil {
		defer func() { _ = file.Close() }()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &runningError{dir: d, pid: readPID(file)}
		}
		return nil, fmt.Errorf("locking %s: %w", d.lock(), err)
	}
	if err := writePID(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// lockExclusively tries more than once because a caller of holder has the lock for an
// instant.
func lockExclusively(file *os.File) error {
	const attempts, pause = 10, 20 * time.Millisecond
	for attempt := 1; ; attempt++ {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || attempt == attempts {
			return err
		}
		time.Sleep(pause)
	}
}

// requireOwn refuses a folder with foreign files, since the start of a cluster deletes the
// files of the previous one.
func (d stateDir) requireOwn() error {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, os.ErrNotExist) || (err == nil && len(entries) == 0) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the state folder: %w", err)
	}
	if _, err := os.Stat(d.lock()); err != nil {
		return fmt.Errorf("%s is not empty and was not made by devcluster; give another folder with --dir", d)
	}
	return nil
}

// reset deletes the files of an earlier cluster and creates the empty subfolders.
func (d stateDir) reset() error {
	for _, path := range []string{d.state(), d.kubeconfig(), d.etcd(), d.logs(), d.pki(), d.prometheus()} {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("deleting the files of an earlier cluster: %w", err)
		}
	}
	for _, path := range []string{d.etcd(), d.logs(), d.pki(), d.prometheus()} {
		if err := os.Mkdir(path, 0o700); err != nil {
			return fmt.Errorf("creating the subfolders of the state folder: %w", err)
		}
	}
	return nil
}

// holder returns the process that holds the claim, if any.
func (d stateDir) holder() (pid int, held bool, err error) {
	file, err := os.Open(d.lock())
	if errors.Is(err, os.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer func() { _ = file.Close() }()

	// A claim excludes a shared lock; another caller of this method does not.
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return readPID(file), true, nil
	}
	return 0, false, err
}

// writePID writes the number of this process to the locked file, for signals. The number is
// valid only while the file is locked.
func writePID(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// readPID returns 0 for a holder that has not written its number yet.
func readPID(file *os.File) int {
	note := make([]byte, 32)
	n, _ := file.ReadAt(note, 0)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(note[:n])))
	return pid
}
