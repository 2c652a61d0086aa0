package robustness_test

import (
	"net"
	"sync"
)

// connections is a listener whose connections can be reset, or swallow all traffic.
type connections struct {
	net.Listener

	mu   sync.Mutex
	open map[*connection]struct{}
	// hole is closed when the black hole ends; nil without a black hole.
	hole chan struct{}
}

func newConnections(listener net.Listener) *connections {
	return &connections{Listener: listener, open: map[*connection]struct{}{}}
}

// Accept implements [net.Listener].
func (c *connections) Accept() (net.Conn, error) {
	accepted, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	made := &connection{Conn: accepted, all: c, closed: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[made] = struct{}{}
	return made, nil
}

// reset resets all connections; both ends learn of it at once.
func (c *connections) reset() {
	c.mu.Lock()
	open := make([]*connection, 0, len(c.open))
	for connection := range c.open {
		open = append(open, connection)
	}
	c.mu.Unlock()
	for _, connection := range open {
		if tcp, ok := connection.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // A reset instead of an orderly end.
		}
		_ = connection.Close()
	}
}

// swallow stops all traffic in both directions until resume.
func (c *connections) swallow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hole == nil {
		c.hole = make(chan struct{})
	}
}

// resume delivers the traffic that swallow stopped.
func (c *connections) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hole != nil {
		close(c.hole)
		c.hole = nil
	}
}

// connection waits while the black hole lasts.
type connection struct {
	net.Conn

	all    *connections
	once   sync.Once
	closed chan struct{}
}

func (c *connection) pass() {
	c.all.mu.Lock()
	hole := c.all.hole
	c.all.mu.Unlock()
	if hole == nil {
		return
	}
	select {
	case <-hole:
	case <-c.closed:
	}
}

// Read implements [net.Conn].
func (c *connection) Read(into []byte) (int, error) {
	count, err := c.Conn.Read(into)
	c.pass()
	return count, err
}

// Write implements [net.Conn].
func (c *connection) Write(from []byte) (int, error) {
	c.pass()
	return c.Conn.Write(from)
}

// Close implements [net.Conn].
func (c *connection) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.all.mu.Lock()
		defer c.all.mu.Unlock()
		delete(c.all.open, c)
	})
	return c.Conn.Close()
}
