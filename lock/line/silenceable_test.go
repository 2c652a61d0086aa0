package line_test

import (
	"net"
	"sync"
	"time"
)

// silenceable is a connection that passes nothing while it is silent, and all of that afterwards, as TCP does.
type silenceable struct {
	net.Conn
	isDeaf, isMute func() bool

	mu sync.Mutex
	// pending is what was written in a silence. A goroutine writes it afterwards.
	pending []byte
	closed  chan struct{}
	close   sync.Once
}

func newSilenceable(connection net.Conn, isDeaf, isMute func() bool) *silenceable {
	return &silenceable{Conn: connection, isDeaf: isDeaf, isMute: isMute, closed: make(chan struct{})}
}

// silencePeriod is how often the end of a silence is looked for.
const silencePeriod = 3 * time.Millisecond

// awaitEnd reports whether the silence has ended, and not the connection.
func (s *silenceable) awaitEnd(isSilent func() bool) bool {
	for isSilent() {
		select {
		case <-time.After(silencePeriod):
		case <-s.closed:
			return false
		}
	}
	return true
}

func (s *silenceable) Write(data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.pending) > 0:
	case !s.isMute():
		return s.Conn.Write(data)
	default:
		go s.writePending()
	}
	s.pending = append(s.pending, data...)
	return len(data), nil
}

func (s *silenceable) writePending() {
	if !s.awaitEnd(s.isMute) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.Conn.Write(s.pending) // It fails on a connection that is closed.
	s.pending = nil
}

func (s *silenceable) Close() error {
	s.close.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

func (s *silenceable) Read(into []byte) (int, error) {
	length, err := s.Conn.Read(into)
	if err == nil && !s.awaitEnd(s.isDeaf) {
		return 0, net.ErrClosed
	}
	return length, err
}
