package server

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/go-logr/logr"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/listener"
)

const (
	hostile = "192.0.2.1:1"
	honest  = "192.0.2.2:1"
)

// fakeConn is a connection from an address.
type fakeConn struct {
	net.Conn

	from     string
	isClosed bool
}

func (c *fakeConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.from))
}

func (c *fakeConn) Close() error {
	c.isClosed = true
	return nil
}

// fakeListener accepts what it was told to.
type fakeListener struct {
	net.Listener

	next *fakeConn
}

func (l *fakeListener) Accept() (net.Conn, error) {
	next := l.next
	if next == nil {
		return nil, net.ErrClosed
	}
	l.next = nil
	return next, nil
}

// bounded are requests with a clock of the test.
type bounded struct {
	*requests

	t        *testing.T
	clock    *clocktesting.FakeClock
	inner    *fakeListener
	listener *listener.Listener
	// isKnown says that requests which are begun have known credentials.
	isKnown bool
}

func newLimiter(t *testing.T, bounds limits.Limits) *limits.Limiter {
	t.Helper()
	limiter, err := limits.New(bounds, nil)
	if err != nil {
		t.Fatal(err)
	}
	return limiter
}

func newBounded(t *testing.T) *bounded {
	t.Helper()
	fake := clocktesting.NewFakeClock(time.Date(2024, 3, 15, 10, 30, 0, 0, time.UTC))
	inner := &fakeListener{}
	return &bounded{
		requests: newRequests(100, 100, newLimiter(t, limits.Limits{}), fake), t: t, clock: fake,
		inner: inner, listener: listener.Limit(inner, listener.Options{Max: 1000}),
	}
}

// open opens a connection from the address. It returns nil if there is no room.
func (b *bounded) open(from string) *listener.Conn {
	b.t.Helper()
	b.inner.next = &fakeConn{from: from}
	accepted, err := b.listener.Accept()
	if err != nil {
		return nil
	}
	return accepted.(*listener.Conn)
}

// openProven opens one that has had a call.
func (b *bounded) openProven(from string) *listener.Conn {
	b.t.Helper()
	c := b.open(from)
	c.Hold(true)()
	return c
}

func isClosed(c *listener.Conn) bool { return c.Conn.(*fakeConn).isClosed }

// contextOf returns the context of a request of the connection.
func (b *bounded) contextOf(c *listener.Conn) context.Context {
	server := &http.Server{}
	listener.Track(server, logr.Discard())
	return server.ConnContext(b.t.Context(), c)
}

// begin begins a request over HTTP/2 with the answer, and ends another one for it if need be. It returns nil
// if there is no place.
func (b *bounded) begin(of *listener.Conn, w http.ResponseWriter) *request {
	begun := &request{all: b.requests, of: of, network: of.Network(), isHTTP2: true, w: w}
	if w == nil {
		begun.w = httptest.NewRecorder()
	}
	victim, ok := b.requests.begin(begun, func() bool { return b.isKnown })
	if victim != nil {
		victim.end()
	}
	if !ok {
		return nil
	}
	return begun
}
