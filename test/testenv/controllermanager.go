package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// ControllerManager is a running kube-controller-manager.
type ControllerManager struct {
	command *exec.Cmd
	log     string
}

// StartControllerManager starts a kube-controller-manager with the named controllers, and
// with the rights of an administrator. The caller stops it.
func (e *Environment) StartControllerManager(controllers ...string) (*ControllerManager, error) {
	kubeconfig, err := os.CreateTemp(e.dir, "controller-manager-")
	if err != nil {
		return nil, err
	}
	if _, err := kubeconfig.Write(e.envtest.KubeConfig); err != nil {
		return nil, err
	}
	if err := kubeconfig.Close(); err != nil {
		return nil, err
	}
	log, err := os.Create(kubeconfig.Name() + ".log")
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // The process has its own.
	//nolint:noctx // It has to outlive the contexts of tests, and is ended by Stop.
	command := exec.Command(filepath.Join(Assets(e.root), "kube-controller-manager"),
		"--kubeconfig="+kubeconfig.Name(),
		"--controllers="+strings.Join(controllers, ","),
		"--leader-elect=false",
		"--kube-api-qps=1000", "--kube-api-burst=1000",
		"--secure-port=0",
	)
	command.Stderr = log
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start kube-controller-manager: %w", err)
	}
	return &ControllerManager{command: command, log: log.Name()}, nil
}

// Log is the file that the process logs to.
func (m *ControllerManager) Log() string { return m.log }

// Pause stops the process from doing anything until [ControllerManager.Resume].
func (m *ControllerManager) Pause() error { return m.command.Process.Signal(syscall.SIGSTOP) }

// Resume has the process go on.
func (m *ControllerManager) Resume() error { return m.command.Process.Signal(syscall.SIGCONT) }

// Stop ends the process.
func (m *ControllerManager) Stop() error {
	err := m.command.Process.Kill()
	if _, waitErr := m.command.Process.Wait(); err == nil && !errors.Is(waitErr, os.ErrProcessDone) {
		err = waitErr
	}
	return err
}
