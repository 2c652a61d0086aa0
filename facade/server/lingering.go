package server

import (
	"net"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// lingering are the connections that the server has ended while it stops. Nothing more is sent on them, but they are
// read until their clients end them too. A client that writes to a connection that is closed, were it only that it has
// room for more answers, takes it for broken, and may give up the answers that it has yet to read: an HTTP/2
// client of Go does. It is safe for concurrent use.
type lingering struct {
	// max bounds them: new connections are accepted while others linger.
	max int

	mu          sync.Mutex
	isOn        bool
	connections map[net.Conn]struct{}
	reading     sync.WaitGroup
}

// begin lets connections linger that end from now on.
func (l *lingering) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isOn = true
	l.connections = map[net.Conn]struct{}{}
}

// add takes over a connection that has ended. It reports false if that is to be closed at once.
func (l *lingering) add(c *connection) bool {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	l.mu.Lock()
	defer l.mu.Unlock()
	if !ok || !l.isOn || len(l.connections) >= l.max || half.CloseWrite() != nil {
		return false
	}
	l.connections[c.Conn] = struct{}{}
	l.reading.Go(func() {
		c.discard()
		l.mu.Lock()
		defer l.mu.Unlock()
		_ = c.Conn.Close()
		delete(l.connections, c.Conn)
	})
	return true
}

// end waits for the clients, and closes what they have not ended after [LingerTimeout].
func (l *lingering) end(clock clock.Clock) {
	l.mu.Lock()
	l.isOn = false
	l.mu.Unlock()
	haveEnded := make(chan struct{})
	go func() {
		defer close(haveEnded)
		l.reading.Wait()
	}()
	timer := clock.NewTimer(LingerTimeout)
	defer timer.Stop()
	select {
	case <-haveEnded:
	case <-timer.C():
		l.closeAll()
		<-haveEnded
	}
}

func (l *lingering) closeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.connections {
		_ = c.Close()
	}
}

// discard reads a connection that is closed until its client ends it, or it breaks. Whoever reads it at the moment learns
// that it is closed.
func (c *connection) discard() {
	_ = c.Conn.SetReadDeadline(time.Unix(1, 0))
	c.reading.Lock() // That reader has returned, and no other begins.
	_ = c.Conn.SetReadDeadline(time.Time{})
	c.reading.Unlock()
	discarded := make([]byte, 512)
	for {
		if _, err := c.Conn.Read(discarded); err != nil {
			return
		}
	}
}
