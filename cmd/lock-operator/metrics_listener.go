package main

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"slices"
	"sync"

	"forrst.dev/lock-operator/lock/network"
)

const (
	// maxMetricsConnections are open at a time, and maxMetricsConnectionsOfNetwork of one network: few
	// clients have a reason to ask for metrics.
	maxMetricsConnections          = 32
	maxMetricsConnectionsOfNetwork = 8
)

// metricsListener bounds the connections that are open: all of them, and those of one network. For one
// more, the oldest ends of those that have got no metrics yet. If there is none, it is closed at once.
type metricsListener struct {
	net.Listener

	mu    sync.Mutex
	total int
	open  map[netip.Prefix]int
	// unproven are those that have got no metrics, in the order in which they were opened.
	unproven []*metricsConnection
}

func newMetricsListener(inner net.Listener) *metricsListener {
	return &metricsListener{Listener: inner, open: map[netip.Prefix]int{}}
}

// Accept implements [net.Listener].
func (l *metricsListener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		added := &metricsConnection{Conn: accepted, all: l, network: network.Of(accepted.RemoteAddr().String())}
		ended, ok := l.add(added)
		if ended != nil {
			_ = ended.Conn.Close() // It no longer counts.
		}
		if ok {
			return added, nil
		}
		_ = accepted.Close() // The client is told nothing either way.
	}
}

// add reports whether there is room for a connection, which it then takes, and returns the one that ends for
// it, or nil.
func (l *metricsListener) add(added *metricsConnection) (ended *metricsConnection, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	isNetworkFull := l.open[added.network] >= maxMetricsConnectionsOfNetwork
	if isNetworkFull || l.total >= maxMetricsConnections {
		for _, each := range l.unproven {
			// A network with many gives way to one with few.
			isCandidate := !isNetworkFull || each.network == added.network
			if isCandidate && (ended == nil || l.open[each.network] > l.open[ended.network]) {
				ended = each
			}
		}
		if ended == nil {
			return nil, false
		}
		l.remove(ended)
	}
	l.total++
	l.open[added.network]++
	l.unproven = append(l.unproven, added)
	return ended, true
}

// remove forgets a connection. It needs the mutex.
func (l *metricsListener) remove(c *metricsConnection) {
	if c.isOver {
		return
	}
	c.isOver = true
	l.total--
	l.open[c.network]--
	if l.open[c.network] == 0 {
		delete(l.open, c.network)
	}
	l.prove(c)
}

// prove records that a connection no longer gives way to others. It needs the mutex.
func (l *metricsListener) prove(c *metricsConnection) {
	l.unproven = slices.DeleteFunc(l.unproven, func(each *metricsConnection) bool { return each == c })
}

// metricsConnection counts until it is closed, or ends for another.
type metricsConnection struct {
	net.Conn

	all     *metricsListener
	network netip.Prefix
	// isOver needs the mutex of the listener.
	isOver bool
}

// Close implements [net.Conn].
func (c *metricsConnection) Close() error {
	c.all.mu.Lock()
	c.all.remove(c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}

// authorized records that a client of the connection may get metrics.
func (c *metricsConnection) authorized() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.all.prove(c)
}

// metricsConnectionKey is the key of the [*metricsConnection] in the contexts of its requests.
type metricsConnectionKey struct{}

func withMetricsConnection(ctx context.Context, c net.Conn) context.Context {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	return context.WithValue(ctx, metricsConnectionKey{}, c)
}
