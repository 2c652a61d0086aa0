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
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// startTimeout bounds the time until the façade of a new replica answers.
const startTimeout = 60 * time.Second

// replica is one operator replica. Its processes follow each other, at the same address.
type replica struct {
	name, binary, dir string
	arguments         []string
	// address is that of the façade.
	address string
	path    *path

	// mu guards the fields below, which belong to the present process.
	mu      sync.Mutex
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

// startReplica starts a process that reaches the API server through the proxy and logs to a file
// in dir. It runs until [replica.stop], or until this process ends.
func startReplica(binary, dir, name string, proxy *proxy, allowance time.Duration) (*replica, error) {
	kubeconfig := filepath.Join(dir, name+".kubeconfig")
	if err := writeKubeconfig(kubeconfig, proxy.kubeconfig()); err != nil {
		return nil, err
	}
	made := &replica{
		name: name, binary: binary, dir: dir, address: "127.0.0.1:0", path: proxy.path,
		arguments: []string{"--kubeconfig", kubeconfig, "--clock-skew-allowance", allowance.String()},
	}
	err := made.start()
	return made, err
}

// start starts a process, which must not run yet, at the address of the one before.
func (r *replica) start() error {
	logs, err := os.OpenFile(filepath.Join(r.dir, r.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = logs.Close() }() // The process has its own handle.
	//nolint:noctx // It outlives the contexts of tests and ends with its input.
	command := exec.Command(r.binary, append(r.arguments, "--address", r.address)...)
	command.Stderr = logs
	// As cmd/lock-operator sets them for itself.
	command.Env = append(os.Environ(), "HTTP2_READ_IDLE_TIMEOUT_SECONDS=1", "HTTP2_PING_TIMEOUT_SECONDS=2")
	input, err := command.StdinPipe()
	if err != nil {
		return err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	lines := bufio.NewScanner(output)
	lines.Scan()
	address := lines.Text()
	go func() {
		for lines.Scan() {
			// A line that cannot be read is one that a kill has cut off. Without reports the
			// path counts as closed, which a run would show.
			_ = r.path.note(lines.Text())
		}
		ended <- command.Wait()
	}()
	r.mu.Lock()
	r.command, r.input, r.ended = command, input, ended
	r.mu.Unlock()
	if address == "" {
		return errors.Join(fmt.Errorf("%s did not start, see %s", r.name, logs.Name()), r.stop())
	}
	r.address = address
	return nil
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
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.command.Process.Signal(with)
}

// tell sends a command to the process.
func (r *replica) tell(command string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := fmt.Fprintln(r.input, command)
	return err
}

// kill ends the process at once, and returns when it has ended.
func (r *replica) kill() error {
	if err := r.signal(syscall.SIGKILL); err != nil {
		return err
	}
	r.mu.Lock()
	ended := r.ended
	r.mu.Unlock()
	err := <-ended
	ended <- err
	return nil
}

// isRunning reports whether the process has not ended.
func (r *replica) isRunning() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
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
	r.mu.Lock()
	_ = r.input.Close()
	ended := r.ended
	r.mu.Unlock()
	select {
	case err := <-ended:
		ended <- err
		return err
	case <-time.After(30 * time.Second):
		return errors.Join(errors.New("a replica did not end"), r.signal(syscall.SIGKILL))
	}
}
