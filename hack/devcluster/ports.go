package main

import (
	"context"
	"fmt"
	"net"
)

// A reservedPort is a free loopback port. This process listens on it until the process that
// needs it starts, so no other process gets it.
type reservedPort struct {
	listener net.Listener
}

// address returns host and port.
func (p reservedPort) address() string {
	return p.listener.Addr().String()
}

// number returns the port alone.
func (p reservedPort) number() string {
	_, port, _ := net.SplitHostPort(p.address())
	return port
}

// release frees the port for the process that is about to listen on it. Repeated calls have
// no effect.
func (p reservedPort) release() {
	if p.listener != nil {
		_ = p.listener.Close()
	}
}

// ports are the listening ports of a cluster, except the façade's.
type ports struct {
	etcdHealth, apiServer, webhook, operatorHealth, metrics, prometheus reservedPort
}

func (p *ports) all() []*reservedPort {
	return []*reservedPort{&p.etcdHealth, &p.apiServer, &p.webhook, &p.operatorHealth, &p.metrics, &p.prometheus}
}

func reservePorts(ctx context.Context) (*ports, error) {
	p := &ports{}
	for _, port := range p.all() {
		var err error
		if port.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(loopback, "0")); err != nil {
			p.release()
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
	}
	return p, nil
}

func (p *ports) release() {
	for _, port := range p.all() {
		port.release()
	}
}
