package robustness_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// startTimeout bounds the time until the façade of a new replica answers.
const startTimeout = 60 * time.Second

// replica is one operator process.
type replica struct {
	address string
	command *exec.Cmd
	input   io.WriteCloser
	ended   chan error
}

// build compiles the replica. Overlay names a file for "go build -overlay", or is empty.
func build(ctx context.Context, dir, overlay string) (string, error) {
	binary := filepath.Join(dir, "replica")
	arguments := []string{"build", "-o", binary}
	if raceEnabled {
		arguments = append(arguments, "-race")
	}
	if overlay != "" {
		arguments = append(arguments, "-overlay", overlay)
	}
	output, err := exec.CommandContext(ctx, "go", append(arguments, "./replica")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the replica: %w\n%s", err, output)
	}
	return binary, nil
}

// startReplica starts a process that reaches the API server by config and logs to a file
// in dir. It runs until [replica.stop], or until this process ends.
func startReplica(binary, dir, name string, config *rest.Config, allowance time.Duration) (*replica, error) {
	kubeconfig := filepath.Join(dir, name+".kubeconfig")
	if err := writeKubeconfig(kubeconfig, config); err != nil {
		return nil, err
	}
	logs, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = logs.Close() }() // The process has its own handle.
	//nolint:noctx // It outlives the contexts of tests and ends with its input.
	command := exec.Command(binary, "--kubeconfig", kubeconfig, "--clock-skew-allowance", allowance.String())
	command.Stderr = logs
	input, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	started := &replica{command: command, input: input, ended: make(chan error, 1)}
	address, err := bufio.NewReader(output).ReadString('\n')
	go func() { started.ended <- command.Wait() }()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s did not start, see %s: %w", name, logs.Name(), err), started.stop())
	}
	started.address = strings.TrimSpace(address)
	return started, nil
}

func writeKubeconfig(path string, config *rest.Config) error {
	const name = "robustness"
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: config.Host, CertificateAuthorityData: config.CAData}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name}},
		CurrentContext: name,
	}, path)
}

// signal sends a signal to the process.
func (r *replica) signal(with syscall.Signal) error {
	return r.command.Process.Signal(with)
}

// stepClock sets how far the local clock of the replica is ahead.
func (r *replica) stepClock(ahead time.Duration) error {
	_, err := fmt.Fprintf(r.input, "clock %s\n", ahead)
	return err
}

// isRunning reports whether the process has not ended.
func (r *replica) isRunning() bool {
	select {
	case err := <-r.ended:
		r.ended <- err
		return false
	default:
		return true
	}
}

// stop ends the process, and kills it if it does not end in time.
func (r *replica) stop() error {
	_ = r.signal(syscall.SIGCONT) // It may be stopped, or have ended.
	_ = r.input.Close()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(30 * time.Second):
		return errors.Join(errors.New("a replica did not end"), r.signal(syscall.SIGKILL))
	}
}
