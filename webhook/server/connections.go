package server

import (
	"container/list"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	clientnetwork "forrst.dev/lock-operator/lock/network"
)

const (
	// maxNetworks are remembered besides those that have connections, so that a network does not get
	// another burst of requests by connecting anew.
	maxNetworks = 4096
	// slowTransfer is how long a connection may take to send a review, and to take the answer, before it may
	// make room for others. An API server takes milliseconds.
	slowTransfer = time.Second
)

// phase is what a connection is doing.
type phase int

// The first ones may make room for others, in this order.
const (
	// silent means that it has sent no request yet: with --webhook-client-ca, it may have no certificate.
	silent phase = iota
	// idle means that it has no request.
	idle
	// transferring means that a request arrives, or its answer is being sent: the client decides how long that
	// takes. It makes room after [slowTransfer].
	transferring
	// waiting means that a review waits for memory, for [maxWait] at most. Such a connection is never closed for
	// another one: it is the server that keeps it waiting.
	waiting
	// judged means that a review is being judged. Such a connection is never closed for another one.
	judged
	// closed means that it does not count any more.
	closed
)

// evictable is the number of the first phases: those whose connections may make room.
const evictable = waiting

// network is what the clients of one network share.
type network struct {
	prefix netip.Prefix
	// requests is its rate, which needs the mutex of [requests].
	requests *rate.Limiter
	// connections is how many there are, and phases are those of the evictable phases, that which has
	// been in it for longest first. They need the mutex of the listener.
	connections int
	phases      [evictable]list.List
}

type connectionKey struct{}

// listener bounds the connections that are open at a time: all of them, and those of one network. If there
// are too many, another one makes room. If none may, the new one is closed.
type listener struct {
	net.Listener

	max int
	// isVerifying says that clients without a certificate stay silent.
	isVerifying bool
	clock       clock.PassiveClock
	newNetwork  func(netip.Prefix) *network
	refused     prometheus.Counter

	mu       sync.Mutex
	open     int
	networks map[netip.Prefix]*network
	// empty is closed when no connection is open. Nil if none waits for that.
	empty chan struct{}
}

func (s *Server) newListener(inner net.Listener) *listener {
	return &listener{
		Listener:    inner,
		max:         s.options.MaxConnections,
		isVerifying: s.options.ClientCA != "",
		clock:       s.options.Clock,
		newNetwork: func(prefix netip.Prefix) *network {
			return &network{prefix: prefix, requests: s.requests.ofNetwork()}
		},
		refused:  s.refused.WithLabelValues(tooManyConnections),
		networks: map[netip.Prefix]*network{},
	}
}

// connectionUsage returns how many connections are open, as a part of those that may be.
func (s *Server) connectionUsage() float64 {
	connections := s.listener.Load()
	if connections == nil {
		return 0
	}
	connections.mu.Lock()
	defer connections.mu.Unlock()
	return float64(connections.open) / float64(connections.max)
}

// drained returns a channel that is closed when no connection is open.
func (l *listener) drained() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.empty = make(chan struct{})
	l.noticeEmpty()
	return l.empty
}

// noticeEmpty needs the mutex.
func (l *listener) noticeEmpty() {
	if l.open == 0 && l.empty != nil {
		close(l.empty)
		l.empty = nil
	}
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		admitted, closing := l.admit(accepted)
		if closing != nil {
			l.refused.Inc()
			_ = closing.Close() // It has served its purpose, whatever the error.
		}
		if admitted != nil {
			return admitted, nil
		}
	}
}

// admit counts a connection. It returns nil if that is one too many, and what must be closed instead:
// the connection itself, or one that makes room for it.
func (l *listener) admit(accepted net.Conn) (admitted *connection, closing net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.networkOf(accepted.RemoteAddr())
	if isNetworkFull := of.connections >= l.max/networkShare; isNetworkFull || l.open >= l.max {
		leaving := l.leaving(of)
		if !isNetworkFull {
			leaving = l.leavingFor(of)
		}
		if leaving == nil {
			return nil, accepted
		}
		leaving.move(closed)
		closing = leaving.Conn
	}
	l.open++
	of.connections++
	admitted = &connection{Conn: accepted, listener: l, network: of, phase: closed}
	admitted.arriving.Store(awaitHandshake)
	admitted.move(silent)
	return admitted, closing
}

// leavingFor returns the connection that makes room for one of the given network: of that one which has
// the most, counting the new one, and of several of those the one that waits longest. So networks with many
// connections make room for those with few, whatever their clients do. If clients are verified, the silent
// ones count first: they may have no certificate, whereas the others are those of API servers. It needs the mutex.
func (l *listener) leavingFor(newcomer *network) (found *connection) {
	var ofSilent *connection
	var most, mostSilent int
	for _, each := range l.networks {
		if silents := each.phases[silent].Len(); l.isVerifying && silents > 0 {
			if leaving := l.leaving(each); silents > mostSilent || silents == mostSilent && leaving.since.Before(ofSilent.since) {
				ofSilent, mostSilent = leaving, silents
			}
		}
		count := each.connections
		if each == newcomer {
			count++
		}
		if leaving := l.leaving(each); leaving != nil && count > newcomer.connections &&
			(count > most || count == most && leaving.since.Before(found.since)) {
			found, most = leaving, count
		}
	}
	if ofSilent != nil {
		return ofSilent
	}
	return found
}

// leaving returns the connection of the network that makes room before the others of it, or nil if all
// are busy. It needs the mutex.
func (l *listener) leaving(of *network) *connection {
	for each := range evictable {
		oldest := of.phases[each].Front()
		if oldest == nil {
			continue
		}
		leaving := oldest.Value.(*connection)
		if each < transferring || l.clock.Since(leaving.since) >= slowTransfer {
			return leaving
		}
	}
	return nil
}

// networkOf returns what the clients at the address share. It needs the mutex.
func (l *listener) networkOf(address net.Addr) *network {
	prefix := clientnetwork.Of(address.String())
	if known, ok := l.networks[prefix]; ok {
		return known
	}
	if len(l.networks) >= maxNetworks {
		maps.DeleteFunc(l.networks, func(_ netip.Prefix, known *network) bool { return known.connections == 0 })
	}
	l.networks[prefix] = l.newNetwork(prefix)
	return l.networks[prefix]
}

// connection is one that counts until it is closed.
type connection struct {
	net.Conn

	listener *listener
	network  *network
	// arriving says whether a header does.
	arriving atomic.Int32

	// The fields below need the mutex of the listener.

	phase phase
	// since is when the phase began, and place that among those of the phase, if that is evictable.
	since time.Time
	place *list.Element
}

// Values of connection.arriving.
const (
	// noHeader means that no header can begin: a review is served, or the connection may be without one.
	noHeader int32 = iota
	// awaitHandshake means that a handshake must begin.
	awaitHandshake
	// awaitHeader means that a header may begin.
	awaitHeader
	// inHeader means that the first bytes of a handshake or of a header have come.
	inHeader
)

// Read implements [net.Conn]. From the first byte, a header has headerTimeout, but for one on a kept connection: its first
// bytes may have been read with what was before them. That may take as long as a connection without a review, and makes
// room for others as one does.
func (c *connection) Read(into []byte) (int, error) {
	count, err := c.Conn.Read(into)
	if count > 0 && (c.arriving.CompareAndSwap(awaitHeader, inHeader) || c.arriving.CompareAndSwap(awaitHandshake, inHeader)) {
		_ = c.Conn.SetReadDeadline(time.Now().Add(headerTimeout)) //nolint:forbidigo // It fails if the connection is closed.
	}
	return count, err
}

// SetReadDeadline implements [net.Conn]. A [http.Server] sets none after the handshake, and after a header.
func (c *connection) SetReadDeadline(deadline time.Time) error {
	switch arriving := c.arriving.Load(); {
	case deadline.IsZero():
		c.arriving.CompareAndSwap(inHeader, awaitHeader)
	case arriving == awaitHandshake || arriving == inHeader:
		if bound := time.Now().Add(headerTimeout); bound.Before(deadline) { //nolint:forbidigo // That is the clock of connections.
			deadline = bound
		}
	}
	return c.Conn.SetReadDeadline(deadline)
}

// connectionOf returns the connection below TLS.
func connectionOf(served net.Conn) *connection {
	return served.(*tls.Conn).NetConn().(*connection)
}

// Close implements [net.Conn].
func (c *connection) Close() error {
	c.enter(closed)
	return c.Conn.Close()
}

// isClosedByServer reports whether reading failed with the error because the server closed the connection: to
// make room, or since the review took too long to arrive. Otherwise the client has left.
func (c *connection) isClosedByServer(err error) bool {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	return c.phase == closed || errors.Is(err, os.ErrDeadlineExceeded)
}

// setState follows the state of a connection. It is a [http.Server] ConnState.
func setState(served net.Conn, state http.ConnState) {
	switch state {
	case http.StateActive: // The headers have arrived.
		connectionOf(served).arriving.Store(noHeader)
		connectionOf(served).enter(transferring)
	case http.StateIdle:
		connectionOf(served).arriving.Store(awaitHeader)
		connectionOf(served).enter(idle)
	case http.StateNew, http.StateHijacked, http.StateClosed: // The listener sees the first and the last, and no handler hijacks.
	}
}

// enter begins a phase. A closed connection stays closed.
func (c *connection) enter(next phase) {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if c.phase == closed {
		return
	}
	c.move(next)
}

// move changes the phase, and ends the count of a connection that is closed. It needs the mutex.
func (c *connection) move(next phase) {
	if c.place != nil {
		c.network.phases[c.phase].Remove(c.place)
		c.place = nil
	}
	c.phase, c.since = next, c.listener.clock.Now()
	switch {
	case next < evictable:
		c.place = c.network.phases[next].PushBack(c)
	case next == closed:
		c.listener.open--
		c.network.connections--
		c.listener.noticeEmpty()
	}
}
