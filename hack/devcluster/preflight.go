package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-logr/logr"

	"forrst.dev/lock-operator/facade/forrst/routes"
)

const (
	etcdName              = "etcd"
	apiServerName         = "kube-apiserver"
	controllerManagerName = "kube-controller-manager"
	kubectlName           = "kubectl"
	schedulerName         = "kube-scheduler"
	kwokName              = "kwok"
	operatorName          = "lock-operator"
)

// preflight refuses options that would fail later with a less helpful message. It returns
// the address for the façade, with a port that is free at this moment.
func preflight(ctx context.Context, opts options) (facade string, err error) {
	if err := requireBinaries(opts); err != nil {
		return "", err
	}
	if err := checkRoutes(opts.routes); err != nil {
		return "", err
	}
	if opts.observe {
		if _, err := findPrometheus(opts.prometheus); err != nil {
			return "", err
		}
	}
	if opts.operator == "" {
		return "", nil
	}
	return freeFacadeAddress(ctx, opts.facade)
}

// checkRoutes refuses a file that the operator would refuse at its start.
func checkRoutes(path string) error {
	if path == "" {
		return nil
	}
	if _, err := routes.Open(path, nil, logr.Discard()); err != nil {
		return fmt.Errorf("%w; ROUTES names the file", err)
	}
	return nil
}

func requireBinaries(opts options) error {
	var missing []string
	needed := []string{etcdName, apiServerName, controllerManagerName, kubectlName}
	if opts.nodes > 0 {
		needed = append(needed, schedulerName)
	}
	for _, name := range needed {
		if !isExecutable(filepath.Join(opts.binaries, name)) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("no binary %s in %s; \"make control-plane\" builds what is missing into bin/k8s, and "+
			"KUBEBUILDER_ASSETS chooses another folder, which must hold all of them",
			strings.Join(missing, ", "), opts.binaries)
	}
	if opts.operator != "" && !isExecutable(opts.operator) {
		return fmt.Errorf("no operator binary at %s; \"make build\" builds it", opts.operator)
	}
	if opts.nodes > 0 && !isExecutable(opts.kwok) {
		return fmt.Errorf("no binary of kwok at %s, which simulates nodes; \"make bin/kwok\" builds it", opts.kwok)
	}
	return nil
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// freeFacadeAddress checks that the façade can listen on the address, and chooses
// a port where it says 0.
func freeFacadeAddress(ctx context.Context, address string) (string, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("façade address: %w; give host and port, as in FACADE_ADDR=127.0.0.1:8080", err)
	}
	// Any caller that reaches this façade may take and release every lock.
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", fmt.Errorf("façade address %q: the development cluster asks no caller for credentials, so its façade "+
			"listens on loopback only; give one like FACADE_ADDR=127.0.0.1:8080", address)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return "", fmt.Errorf("the façade cannot start: %w; end what listens there, or choose another port "+
			"with FACADE_ADDR=127.0.0.1:PORT", err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String(), nil
}
