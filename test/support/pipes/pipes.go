// Package pipes has a listener without a network, for bubbles of synctest.
package pipes

import (
	"net"
	"net/netip"
)

// Listener hands out the ends of pipes that a test makes.
type Listener struct {
	connections chan net.Conn
	closed      chan struct{}
}

// Listen returns a listener.
func Listen() *Listener {
	return &Listener{connections: make(chan net.Conn), closed: make(chan struct{})}
}

// Connect makes a pipe, and returns the client's end once the server has accepted the other one.
func (l *Listener) Connect() net.Conn {
	client, accepted := net.Pipe()
	l.connections <- accepted
	return client
}

// ConnectFrom does the same for a client with an IP address and a port, of which the server learns.
func (l *Listener) ConnectFrom(address string) net.Conn {
	client, accepted := net.Pipe()
	l.connections <- addressed{accepted, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))}
	return client
}

// addressed is the server's end of a pipe.
type addressed struct {
	net.Conn

	remote net.Addr
}

// RemoteAddr implements [net.Conn].
func (a addressed) RemoteAddr() net.Addr { return a.remote }

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case connection := <-l.connections:
		return connection, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *Listener) Close() error {
	close(l.closed)
	return nil
}

// Addr implements [net.Listener].
func (*Listener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }
