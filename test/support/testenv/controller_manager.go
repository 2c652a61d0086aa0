package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// ControllerManager is a running kube-controller-manager.
type ControllerManager struct {
	process *os.Process
	// ended is closed when the process has ended; err then says how.
	ended chan struct{}
	err   error
	log   string
}

// StartControllerManager runs the real kube-controller-manager with the named controllers,
// each with its own service account as on a real cluster. The controllers start working
// some seconds later. The caller stops it.
func (e *Environment) StartControllerManager(controllers ...string) (*ControllerManager, error) {
	user, err := e.envtest.AddUser(envtest.User{Name: "system:kube-controller-manager"}, nil)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(e.dir, "controller-manager-")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // The process has its own handle.
	command := exec.Command(filepath.Join(Assets(e.root), "kube-controller-manager"),
		"--kubeconfig="+path,
		"--use-service-account-credentials",
		"--controllers="+strings.Join(controllers, ","),
		"--leader-elect=false",
		"--kube-api-qps=1000",
		"--kube-api-burst=1000",
		"--secure-port=0",
	)
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start kube-controller-manager: %w", err)
	}
	manager := &ControllerManager{process: command.Process, ended: make(chan struct{}), log: log.Name()}
	go func() {
		manager.err = command.Wait()
		close(manager.ended)
	}()
	return manager, nil
}

// Log returns the path of the process's log.
func (m *ControllerManager) Log() string { return m.log }

// Pause stops the process until [ControllerManager.Resume], as [Pause] does.
func (m *ControllerManager) Pause() error { return Pause(m.process.Pid) }

// Resume continues the process.
func (m *ControllerManager) Resume() error { return m.process.Signal(syscall.SIGCONT) }

// Stop ends the process. It returns an error if the process had ended before.
func (m *ControllerManager) Stop() error {
	select {
	case <-m.ended:
		return fmt.Errorf("kube-controller-manager ended by itself: %w; see %s", m.err, m.log)
	default:
	}
	if err := m.process.Signal(os.Interrupt); err != nil {
		return err
	}
	select {
	case <-m.ended:
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("kube-controller-manager did not stop within %s", stopTimeout), m.process.Kill())
	}
}
