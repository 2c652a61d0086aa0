package listener

import (
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Conn is a connection of a [Listener]. Its methods may be called on nil, where nothing is known of a connection. It is safe for
// concurrent use.
type Conn struct {
	net.Conn

	all      *Listener
	network  netip.Prefix
	isMember bool

	// These need the mutex of the listener.

	holds    int
	isProven bool
	// leave takes it from those that may be evicted.
	leave func()

	// isClosed says that the server has ended it. It may linger.
	isClosed atomic.Bool
	// reading is held by who reads it before that.
	reading sync.Mutex
}

// Network returns the network of the client. It is zero if nothing is known of it.
func (c *Conn) Network() netip.Prefix {
	if c == nil {
		return netip.Prefix{}
	}
	return c.network
}

// Hold keeps the connection from being evicted until it is released. isProven says that the client has shown who it is: from
// then on the connection makes room after those of clients that have not. Releasing it again changes nothing.
func (c *Conn) Hold(isProven bool) (release func()) {
	if c == nil {
		return func() {}
	}
	c.change(func() {
		c.holds++
		c.isProven = c.isProven || isProven
	})
	return sync.OnceFunc(func() { c.change(func() { c.holds-- }) })
}

func (c *Conn) change(apply func()) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	apply()
	c.settle()
}

// settle puts the connection among those that may be evicted, as the newest one, or among none. It needs the mutex.
func (c *Conn) settle() {
	c.leave()
	c.leave = func() {}
	if _, isOpen := c.all.conns[c]; !isOpen || c.isMember || c.holds > 0 {
		return
	}
	crowd := &c.all.unproven
	if c.isProven {
		crowd = &c.all.idle
	}
	c.leave = crowd.Join(c.network, c)
}

// IsProven reports whether the client has shown who it is.
func (c *Conn) IsProven() bool {
	if c == nil {
		return false
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	return c.isProven
}

// Read implements [net.Conn]. A request that comes after the end could not be answered, so it must not be served.
func (c *Conn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if c.isClosed.Load() {
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Read(p)
	if c.isClosed.Load() {
		return 0, net.ErrClosed
	}
	return n, err
}

// Close implements [net.Conn]. The connection may linger, see [Listener.Linger].
func (c *Conn) Close() error {
	if c == nil || c.isClosed.Swap(true) {
		return nil
	}
	if c.beginToLinger() {
		go c.linger()
		return nil
	}
	return c.end()
}

// abort ends a connection that no longer counts.
func (c *Conn) abort() {
	c.isClosed.Store(true)
	_ = c.Conn.Close() // It has gone all the same.
}

func (c *Conn) end() error {
	c.all.mu.Lock()
	c.all.remove(c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}

func (c *Conn) beginToLinger() bool {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	return ok && c.all.isLingering && half.CloseWrite() == nil
}

// linger reads a connection that is closed until its client ends it, or the listener does.
func (c *Conn) linger() {
	_ = c.Conn.SetReadDeadline(time.Unix(1, 0)) // Whoever reads it at the moment learns that it is closed, and no other begins.
	c.reading.Lock()
	defer c.reading.Unlock()
	_ = c.Conn.SetReadDeadline(time.Time{})
	_, _ = io.Copy(io.Discard, c.Conn)
	_ = c.end()
}
