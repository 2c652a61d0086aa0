package testenv

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Kubectl runs the real kubectl as one user.
type Kubectl struct {
	binary     string
	kubeconfig string
}

// Kubectl writes the kubeconfig to a file of the environment and returns a kubectl
// that uses it.
func (e *Environment) Kubectl(kubeconfig []byte) (*Kubectl, error) {
	file, err := os.CreateTemp(e.dir, "kubeconfig-")
	if err != nil {
		return nil, err
	}
	if _, err := file.Write(kubeconfig); err != nil {
		return nil, err
	}
	return NewKubectl(Assets(e.root), file.Name()), file.Close()
}

// NewKubectl returns the kubectl in the folder assets, with a kubeconfig.
func NewKubectl(assets, kubeconfig string) *Kubectl {
	return &Kubectl{binary: filepath.Join(assets, "kubectl"), kubeconfig: kubeconfig}
}

// Kubeconfig returns the path of the kubeconfig.
func (k *Kubectl) Kubeconfig() string { return k.kubeconfig }

// Run runs kubectl and returns its standard output. The error contains its standard error.
func (k *Kubectl) Run(ctx context.Context, stdin string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, k.binary, append([]string{"--kubeconfig", k.kubeconfig}, arguments...)...)
	command.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(arguments, " "), err, stderr.String())
	}
	return stdout.String() + stderr.String(), nil
}
