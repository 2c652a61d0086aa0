package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/grpclog"
)

const (
	startTimeout = 2 * time.Minute
	startPoll    = 50 * time.Millisecond
)

// cluster is a development cluster in its own folder.
type cluster struct {
	command *exec.Cmd
	// ended is closed when the process has ended.
	ended chan struct{}
	dir   string
	// output is the output of the cluster.
	output bytes.Buffer

	// facade is the address of the façade without a scheme.
	facade     string
	kubeconfig string
}

// startCluster starts the cluster of "make run" with the content of a file of routes, and
// waits until it is ready.
func startCluster(ctx context.Context, settings options, routes string) (*cluster, error) {
	dir, err := os.MkdirTemp("", "lock-operator-bench-")
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: filepath.Join(dir, "dev"), ended: make(chan struct{})}
	routesFile := filepath.Join(dir, "routes.yaml")
	if err := os.WriteFile(routesFile, []byte(routes), 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	//nolint:noctx // a signal ends it together with its children
	c.command = exec.Command(settings.devcluster, "run", "--dir", c.dir, "--facade-addr", "127.0.0.1:0", "--routes", routesFile,
		"--max-locks-per-namespace", "0", // Benchmarks fill one namespace.
		"--operator", settings.operator, "--config", settings.config, "--binaries", settings.binaries)
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

func (c *cluster) waitUntilReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
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
		c.facade, c.kubeconfig = strings.TrimPrefix(announced.Facade, "http://"), announced.Kubeconfig
		return nil
	}
}

// stop ends every process of the cluster and deletes its folder.
func (c *cluster) stop() error {
	_ = c.command.Process.Signal(syscall.SIGTERM) // it may have ended already
	<-c.ended
	return os.RemoveAll(filepath.Dir(c.dir))
}

func (c *cluster) operatorKubeconfig() string {
	return filepath.Join(c.dir, "pki", "lock-operator.kubeconfig")
}

// etcdClient returns a client of the etcd that the API server uses, on the same socket.
func (c *cluster) etcdClient() (*clientv3.Client, error) {
	// A lost connection at the end is expected.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(&bytes.Buffer{}, &bytes.Buffer{}, &bytes.Buffer{}))
	socket := "unix://" + filepath.Join(c.workingDir(), "localhost:2379")
	return clientv3.New(clientv3.Config{Endpoints: []string{socket}, Logger: zap.NewNop()})
}

// workingDir returns the working folder of the cluster's processes.
func (c *cluster) workingDir() string { return filepath.Join(c.dir, "etcd") }
