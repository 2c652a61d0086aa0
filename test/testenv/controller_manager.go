package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// controllers are those that delete what has no place any more, and the one that puts
// cluster roles together.
var controllers = []string{"garbage-collector-controller", "namespace-controller", "clusterrole-aggregation-controller"}

// StartControllerManager runs the real kube-controller-manager, each controller with its
// own service account as on a real cluster, until the returned function is called. It is
// at work some seconds later.
func (e *Environment) StartControllerManager() (stop func() error, err error) {
	user, err := e.envtest.AddUser(envtest.User{Name: "system:kube-controller-manager"}, nil)
	if err != nil {
		return nil, err
	}
	content, err := user.KubeConfig()
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(e.dir, "controller-manager.kubeconfig")
	if err := os.WriteFile(kubeconfig, content, 0o600); err != nil {
		return nil, err
	}
	command := exec.Command(filepath.Join(Assets(e.root), "kube-controller-manager"), //nolint:noctx // it outlives the contexts of a suite's nodes
		"--kubeconfig="+kubeconfig,
		"--use-service-account-credentials",
		"--controllers="+strings.Join(controllers, ","),
		"--leader-elect=false",
		"--kube-api-qps=1000",
		"--kube-api-burst=1000",
		"--secure-port=0",
	)
	var log bytes.Buffer
	command.Stdout, command.Stderr = &log, &log
	if err := command.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	return func() error {
		select {
		case err := <-ended:
			return fmt.Errorf("kube-controller-manager ended by itself: %w: %s", err, log.String())
		default:
		}
		if err := command.Process.Signal(os.Interrupt); err != nil {
			return err
		}
		select {
		case <-ended:
			return nil
		case <-time.After(stopTimeout):
			return errors.Join(fmt.Errorf("kube-controller-manager did not stop within %s", stopTimeout), command.Process.Kill())
		}
	}, nil
}
