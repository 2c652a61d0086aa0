package robustness_test

import (
	"context"
	"net"
	"sync"
)

// connections is a listener whose connections can be reset, refused, or swallow traffic.
type connections struct {
	address net.Addr

	mu sync.Mutex
	// listener is nil while connections are refused or after the end.
	listener net.Listener
	open     map[*connection]struct{}
	// changed is closed when holes, listener or isClosed changes.
	changed  chan struct{}
	holes    holes
	isClosed bool
}

// holes are the directions in which nothing passes, from the API server's point of view.
type holes struct{ in, out bool }

func newConnections(listener net.Listener) *connections {
	return &connections{
		address: listener.Addr(), listener: listener,
		open: map[*connection]struct{}{}, changed: make(chan struct{}),
	}
}

// Addr implements [net.Listener].
func (c *connections) Addr() net.Addr { return c.address }

// Accept implements [net.Listener].
func (c *connections) Accept() (net.Conn, error) {
	for {
		c.mu.Lock()
		listener, changed, isClosed := c.listener, c.changed, c.isClosed
		c.mu.Unlock()
		if isClosed {
			return nil, net.ErrClosed
		}
		if listener == nil {
			<-changed
			continue
		}
		accepted, err := listener.Accept()
		if err != nil {
			c.mu.Lock()
			isPresent := c.listener == listener && !c.isClosed
			c.mu.Unlock()
			if isPresent {
				return nil, err
			}
			continue
		}
		made := &connection{Conn: accepted, all: c, closed: make(chan struct{})}
		c.mu.Lock()
		c.open[made] = struct{}{}
		c.mu.Unlock()
		return made, nil
	}
}

// Close implements [net.Listener].
func (c *connections) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isClosed = true
	c.signal()
	if c.listener == nil {
		return nil
	}
	return c.listener.Close()
}

func (c *connections) signal() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// refuse makes the system refuse new connections until [connections.listen].
func (c *connections) refuse() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	listener := c.listener
	c.listener = nil
	c.signal()
	return listener.Close()
}

// listen accepts connections again, at the same address.
func (c *connections) listen(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, c.address.Network(), c.address.String())
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listener = listener
	c.signal()
	return nil
}

// reset resets all connections; both ends learn of it at once.
func (c *connections) reset() {
	for _, connection := range c.present() {
		if tcp, ok := connection.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // A reset instead of an orderly end.
		}
		_ = connection.Close()
	}
}

func (c *connections) present() []*connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	open := make([]*connection, 0, len(c.open))
	for connection := range c.open {
		open = append(open, connection)
	}
	return open
}

// swallow stops the traffic of all connections in these directions until the next call.
// What was stopped is then delivered.
func (c *connections) swallow(holes holes) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holes = holes
	c.signal()
}

// abandon makes the present connections swallow everything, until they are closed. New
// ones work: the connections are half open.
func (c *connections) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for connection := range c.open {
		connection.isAbandoned = true
	}
	c.signal()
}

// connection waits while nothing passes in its direction.
type connection struct {
	net.Conn

	all    *connections
	once   sync.Once
	closed chan struct{}
	// isAbandoned is guarded by the mutex of all.
	isAbandoned bool
}

func (c *connection) pass(isStopped func(holes) bool) {
	for {
		c.all.mu.Lock()
		mustWait, changed := c.isAbandoned || isStopped(c.all.holes), c.all.changed
		c.all.mu.Unlock()
		if !mustWait {
			return
		}
		select {
		case <-changed:
		case <-c.closed:
			return
		}
	}
}

// Read implements [net.Conn].
func (c *connection) Read(into []byte) (int, error) {
	count, err := c.Conn.Read(into)
	c.pass(func(holes holes) bool { return holes.in })
	return count, err
}

// Write implements [net.Conn].
func (c *connection) Write(from []byte) (int, error) {
	c.pass(func(holes holes) bool { return holes.out })
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
