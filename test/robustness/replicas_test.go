package robustness_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// startTimeout bounds the time until the façade of a new replica answers, also on a busy machine.
const startTimeout = 2 * time.Minute

// replica is one operator replica. Its processes follow each other, at the same address.
type replica struct {
	process

	binary    string
	arguments []string
	// address is that of the façade that authenticates no callers, tokenAddress that of the other.
	address, tokenAddress string
	// peersAddress is where it serves its peers.
	peersAddress atomic.Pointer[string]

	path *path
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
// It shares lines by the files of a folder, unless that is empty.
func startReplica(binary, dir, name string, proxy *proxy, allowance time.Duration, peersFolder string) (*replica, error) {
	kubeconfig := filepath.Join(dir, name+".kubeconfig")
	if err := writeKubeconfig(kubeconfig, proxy.kubeconfig()); err != nil {
		return nil, err
	}
	made := &replica{
		process: process{name: name, dir: dir}, binary: binary, address: "127.0.0.1:0", tokenAddress: "127.0.0.1:0", path: proxy.path,
		arguments: []string{"--kubeconfig", kubeconfig, "--clock-skew-allowance", allowance.String(), "--name", name, "--peers-folder", peersFolder},
	}
	made.peersAddress.Store(new("127.0.0.1:0"))
	err := made.start()
	return made, err
}

// start starts a process, which must not run yet, at the address of the one before.
func (r *replica) start() error {
	command := exec.Command(r.binary, append(r.arguments, "--address", r.address, "--token-address", r.tokenAddress, "--peers-address", *r.peersAddress.Load())...)
	// As cmd/lock-operator sets them for itself.
	command.Env = append(os.Environ(), "HTTP2_READ_IDLE_TIMEOUT_SECONDS=1", "HTTP2_PING_TIMEOUT_SECONDS=2")
	// A line that cannot be read is one that a kill has cut off. Without reports the path counts
	// as closed, which a run would show.
	addresses, err := r.launch(command, func(line string) { _ = r.path.note(line) })
	if err == nil {
		var peers string
		r.address, addresses, _ = strings.Cut(addresses, " ")
		r.tokenAddress, peers, _ = strings.Cut(addresses, " ")
		if peers != "" {
			r.peersAddress.Store(&peers)
		}
	}
	return err
}

func writeKubeconfig(path string, config *rest.Config) error {
	const name = "robustness"
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: config.Host, CertificateAuthorityData: config.CAData}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name}},
		CurrentContext: name,
	}, path)
}
