package server

import (
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// silentConn is a connection whose client sends nothing, and does not end it.
type silentConn struct {
	net.Conn

	isRead    atomic.Bool
	closeOnce sync.Once
	closed    chan struct{}

	mu sync.Mutex
	// isDue is closed at the deadline.
	isDue chan struct{}
}

func (c *silentConn) Read([]byte) (int, error) {
	c.mu.Lock()
	isDue := c.isDue
	c.mu.Unlock()
	c.isRead.Store(true)
	select {
	case <-isDue:
		return 0, os.ErrDeadlineExceeded
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

func (c *silentConn) SetReadDeadline(deadline time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if deadline.IsZero() {
		c.isDue = make(chan struct{})
	} else {
		close(c.isDue)
	}
	return nil
}

func (*silentConn) CloseWrite() error { return nil }

func (c *silentConn) Close() error {
	c.closeOnce.Do(func() { close(c.closed) })
	return nil
}

// openSilent opens a connection whose client is silent, while connections linger.
func openSilent(b *bounded) (*connection, *silentConn) {
	silent := &silentConn{closed: make(chan struct{}), isDue: make(chan struct{})}
	c := b.open(honest)
	c.Conn = silent
	return c, silent
}

// A connection is also closed to end what is done for its client, such as to read a body.
func TestAConnectionThatLingersIsReadNoMore(t *testing.T) {
	b := newBounded(t, 10, 0)
	b.lingering.begin()
	c, silent := openSilent(b)
	read := make(chan error)
	go func() {
		_, err := c.Read(make([]byte, 1))
		read <- err
	}()
	for !silent.isRead.Load() {
		runtime.Gosched()
	}
	_ = c.Close()
	if err := <-read; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	select {
	case <-silent.closed:
		t.Error("it does not linger")
	default:
	}
	b.lingering.closeAll()
	b.lingering.end(b.clock)
}

func TestOnlySoManyConnectionsLinger(t *testing.T) {
	b := newBounded(t, 1, 0)
	b.lingering.begin()
	first, _ := openSilent(b)
	_ = first.Close()
	second, silent := openSilent(b)
	_ = second.Close()
	select {
	case <-silent.closed:
	default:
		t.Error("more connections linger than may be open")
	}
	b.lingering.closeAll()
	b.lingering.end(b.clock)
}
