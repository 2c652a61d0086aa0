package server

import (
	"io"
	"net"
	"sync"

	"k8s.io/utils/clock"
)

// lingering are the connections that the server has ended while it stops. Nothing more is sent on them, but they are
// read until their clients end them too. A client that writes to a connection that is closed, were it only that it has
// room for more answers, takes it for broken, and may give up the answers that it has yet to read: an HTTP/2
// client of Go does. It is safe for concurrent use.
type lingering struct {
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

// add takes over a connection that ends. It reports false if it is to be closed at once.
func (l *lingering) add(c net.Conn) bool {
	half, ok := c.(interface{ CloseWrite() error })
	l.mu.Lock()
	defer l.mu.Unlock()
	if !ok || !l.isOn || half.CloseWrite() != nil {
		return false
	}
	l.connections[c] = struct{}{}
	l.reading.Go(func() {
		_, _ = io.Copy(io.Discard, c) // Until its end, or until it breaks.
		l.mu.Lock()
		defer l.mu.Unlock()
		_ = c.Close()
		delete(l.connections, c)
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
