package testenv

import (
	"context"
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

// StartControllerManager runs the real kube-controller-manager with the named
// controllers until the returned function is called, which waits for it to end. It
// returns without waiting for the controllers to be ready. What it says goes to a file
// of the environment, which a failed stop quotes.
func (e *Environment) StartControllerManager(ctx context.Context, controllers ...string) (stop func() error, err error) {
	user, err := e.envtest.AddUser(envtest.User{Name: "system:kube-controller-manager", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(e.dir, "controller-manager.kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(e.dir, "controller-manager.log"))
	if err != nil {
		return nil, err
	}
	// It outlives ctx, which suites end with each node.
	ctx, kill := context.WithCancel(context.WithoutCancel(ctx))
	command := exec.CommandContext(ctx, filepath.Join(Assets(e.root), "kube-controller-manager"),
		"--kubeconfig="+path,
		"--controllers="+strings.Join(controllers, ","),
		"--leader-elect=false",
		// Nobody asks it anything, so it does not listen.
		"--secure-port=0",
	)
	command.Stdout, command.Stderr = log, log
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = stopTimeout
	if err := command.Start(); err != nil {
		kill()
		return nil, errors.Join(err, log.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	return func() error {
		select {
		case err := <-ended:
			kill()
			said, _ := os.ReadFile(log.Name()) // It is quoted as far as there is any.
			return errors.Join(fmt.Errorf("the controller manager ended before it was told to: %w: %s", err, said), log.Close())
		default:
		}
		kill()
		select {
		case <-ended: // By the signal.
			return log.Close()
		case <-time.After(2 * stopTimeout):
			return errors.Join(errors.New("the controller manager does not stop"), log.Close())
		}
	}, nil
}
