package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/grpclog"
)

const (
	// StartTimeout bounds the start of a program.
	StartTimeout = 2 * time.Minute
	startPoll    = 50 * time.Millisecond
)

// Cluster is a development cluster in its own folder.
type Cluster struct {
	command *exec.Cmd
	// ended is closed when the process has ended.
	ended chan struct{}
	dir   string
	// output is the output of the cluster.
	output bytes.Buffer

	// Facade is the address of the façade without a scheme.
	Facade     string
	kubeconfig string
}

// startCluster starts the cluster of "make run" with the content of a file of routes, and
// waits until it is ready.
func startCluster(ctx context.Context, settings Options, routes string) (*Cluster, error) {
	dir, err := os.MkdirTemp("", "lock-operator-bench-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: filepath.Join(dir, "dev"), ended: make(chan struct{})}
	routesFile := filepath.Join(dir, "routes.yaml")
	if err := os.WriteFile(routesFile, []byte(routes), 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c.command = exec.Command(settings.Devcluster, "run", "--dir", c.dir, "--facade-addr", "127.0.0.1:0", "--routes", routesFile,
		"--max-locks-per-namespace", "0", // Benchmarks fill one namespace.
		"--operator", settings.Operator, "--config", settings.Config, "--binaries", settings.Binaries)
	c.command.Stdout, c.command.Stderr = &c.output, &c.output
	// Ctrl-C reaches the benchmark alone, which then ends the cluster.
	c.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.command.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() {
		_ = c.command.Wait() // its output says how it ended
		close(c.ended)
	}()
	if err := c.waitUntilReady(ctx); err != nil {
		err = errors.Join(err, c.stop())
		return nil, fmt.Errorf("start the cluster: %w: %s", err, c.output.String())
	}
	return c, nil
}

func (c *Cluster) waitUntilReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, StartTimeout)
	defer cancel()
	ticker := time.NewTicker(startPoll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.ended:
			return errors.New("the cluster ended")
		case <-ticker.C:
		}
		content, err := os.ReadFile(filepath.Join(c.dir, "cluster.json"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		var announced struct {
			Facade     string `json:"facade"`
			Kubeconfig string `json:"kubeconfig"`
		}
		if err := json.Unmarshal(content, &announced); err != nil {
			return err
		}
		c.Facade, c.kubeconfig = strings.TrimPrefix(announced.Facade, "http://"), announced.Kubeconfig
		return nil
	}
}

// stop ends every process of the cluster and deletes its folder.
func (c *Cluster) stop() error {
	_ = c.command.Process.Signal(syscall.SIGTERM) // it may have ended already
	<-c.ended
	return os.RemoveAll(filepath.Dir(c.dir))
}

// OperatorKubeconfig returns the path of the operator's own kubeconfig.
func (c *Cluster) OperatorKubeconfig() string {
	return filepath.Join(c.dir, "pki", "lock-operator.kubeconfig")
}

// etcdClient returns a client of the etcd that the API server uses, on the same socket.
func (c *Cluster) etcdClient() (*clientv3.Client, error) {
	// A lost connection at the end is expected.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(&bytes.Buffer{}, &bytes.Buffer{}, &bytes.Buffer{}))
	socket := "unix://" + filepath.Join(c.workingDir(), "localhost:2379")
	return clientv3.New(clientv3.Config{Endpoints: []string{socket}, Logger: zap.NewNop()})
}

// workingDir returns the working folder of the cluster's processes.
func (c *Cluster) workingDir() string { return filepath.Join(c.dir, "etcd") }

// pid returns the cluster's process of the program.
func (c *Cluster) pid(program string) (int, error) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	for _, path := range lines {
		content, _ := os.ReadFile(path) // an ended process has no such file
		name, _, _ := strings.Cut(string(content), "\x00")
		process := filepath.Dir(path)
		dir, _ := os.Readlink(filepath.Join(process, "cwd"))
		if filepath.Base(name) == program && dir == c.workingDir() {
			return strconv.Atoi(filepath.Base(process))
		}
	}
	return 0, fmt.Errorf("no process runs %s", program)
}
