package server

import (
	"container/list"
	"crypto/tls"
	"maps"
	"net"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"forrst.dev/lock-operator/lock/bodies"
	clientnetwork "forrst.dev/lock-operator/lock/network"
)

// maxNetworks are remembered besides those that have connections, so that a network does not get
// another burst of requests by connecting anew.
const maxNetworks = 4096

// network is what the clients of one network share.
type network struct {
	memory   *bodies.Budget
	requests *rate.Limiter
	// connections and silent need the mutex of the listener. The latter are those without a request yet,
	// the oldest first.
	connections int
	silent      list.List
}

type networkKey struct{}

// listener bounds the connections that are open at a time: all of them, and those of one network. If there
// are too many, that which has been silent for longest since it was accepted makes room, of the same network
// or of all: a client with a certificate has sent a request within milliseconds. If none is silent, the new
// one is closed.
type listener struct {
	net.Listener

	max        int
	newNetwork func() *network
	refused    prometheus.Counter

	mu       sync.Mutex
	open     int
	networks map[netip.Prefix]*network
	// silent are the connections without a request yet, the oldest first.
	silent list.List
}

func (s *Server) newListener(inner net.Listener) *listener {
	return &listener{
		Listener: inner,
		max:      s.options.MaxConnections,
		newNetwork: func() *network {
			return &network{
				memory:   s.memory.Part(s.options.MaxMemory / byteCost / networkShare),
				requests: newRate(s.options.MaxRequests / networkShare),
			}
		},
		refused:  s.refused.WithLabelValues(tooManyConnections),
		networks: map[netip.Prefix]*network{},
	}
}

// newRate permits so many requests each second, and as many at once.
func newRate(perSecond int) *rate.Limiter { return rate.NewLimiter(rate.Limit(perSecond), perSecond) }

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
	network := l.networkOf(accepted.RemoteAddr())
	var silent *list.List
	switch {
	case network.connections >= l.max/networkShare:
		silent = &network.silent
	case l.open >= l.max:
		silent = &l.silent
	}
	if silent != nil {
		oldest := silent.Front()
		if oldest == nil {
			return nil, accepted
		}
		evicted := oldest.Value.(*connection) //nolint:errcheck,forcetypeassert // The lists have nothing else.
		evicted.forget()
		closing = evicted.Conn
	}
	l.open++
	network.connections++
	admitted = &connection{Conn: accepted, listener: l, network: network}
	admitted.silent, admitted.silentOfNetwork = l.silent.PushBack(admitted), network.silent.PushBack(admitted)
	return admitted, closing
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
	l.networks[prefix] = l.newNetwork()
	return l.networks[prefix]
}

// connection is one that counts until it is closed.
type connection struct {
	net.Conn

	listener *listener
	network  *network
	// The rest needs the mutex of the listener. The elements are nil from the first request on.
	silent, silentOfNetwork *list.Element
	isClosed                bool
}

// connectionOf returns the connection below TLS.
func connectionOf(served net.Conn) *connection {
	return served.(*tls.Conn).NetConn().(*connection) //nolint:errcheck,forcetypeassert // The listener makes no other.
}

// Close implements [net.Conn].
func (c *connection) Close() error {
	c.listener.mu.Lock()
	c.forget()
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// spoke keeps the connection from making room for others.
func (c *connection) spoke() {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.hear()
}

// hear takes the connection off the silent ones. It needs the mutex.
func (c *connection) hear() {
	if c.silent != nil {
		c.listener.silent.Remove(c.silent)
		c.network.silent.Remove(c.silentOfNetwork)
		c.silent, c.silentOfNetwork = nil, nil
	}
}

// forget ends the count of the connection. It needs the mutex. Calling it again changes nothing.
func (c *connection) forget() {
	if c.isClosed {
		return
	}
	c.isClosed = true
	c.hear()
	c.listener.open--
	c.network.connections--
}
