package testenv

import (
	"fmt"
	"strings"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// APIServer is an API server of an environment.
type APIServer struct{ process *envtest.APIServer }

// AnotherAPIServer starts one more API server with the same etcd, and with further flags such as
// "profiling=false". It takes the same certificates and tokens as the first. The caller stops it before the
// environment.
func (e *Environment) AnotherAPIServer(flags ...string) (*APIServer, error) {
	first := e.envtest.ControlPlane.APIServer
	another := &envtest.APIServer{
		Path: first.Path, CertDir: first.CertDir, EtcdURL: first.EtcdURL,
		StartTimeout: first.StartTimeout, StopTimeout: first.StopTimeout,
	}
	another.Authn = first.Authn
	another.Configure().Set("service-account-issuer", first.SecureServing.URL("https", "/").String())
	for _, flag := range flags {
		name, value, _ := strings.Cut(flag, "=")
		another.Configure().Set(name, value)
	}
	if err := another.Start(); err != nil {
		return nil, fmt.Errorf("start another API server: %w", err)
	}
	return &APIServer{another}, nil
}

// APIServer returns the first API server.
func (e *Environment) APIServer() *APIServer { return &APIServer{e.envtest.ControlPlane.APIServer} }

// Config returns a configuration of one of the environment's clients for this API server.
func (s *APIServer) Config(of *rest.Config) *rest.Config {
	config := rest.CopyConfig(of)
	config.Host = s.process.SecureServing.URL("https", "").String()
	return config
}

// Kill kills the API server in the middle of its requests; etcd keeps running. [APIServer.Start] starts
// it again.
func (s *APIServer) Kill() error {
	pid, err := child("kube-apiserver", "--secure-port="+s.process.SecureServing.Port)
	if err != nil {
		return err
	}
	return kill(pid)
}

// Stop stops the API server; etcd keeps running.
func (s *APIServer) Stop() error { return s.process.Stop() }

// Start starts the API server again, at the same address.
func (s *APIServer) Start() error { return s.process.Start() }
