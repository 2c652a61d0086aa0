package listener

import (
	"cmp"
	"math"
	"net"
	"net/netip"
	"sync"

	"forrst.dev/lock-operator/lock/network"
)

// Reasons why a connection was closed for others.
const (
	// Evicted connections made room for another one.
	Evicted = "evicted"
	// Refused ones found no room.
	Refused = "refused"
)

// Options configures a [Listener].
type Options struct {
	// Max is how many connections are open at a time, but for those of members. Required.
	Max int
	// MaxPerNetwork is how many of them may come from one network: an address, of IPv6 64 bits. Zero means no bound of its own.
	MaxPerNetwork int
	// IsMember reports whether connections from the address do not count against Max: of each such address there are
	// MaxPerNetwork at most, and none of them makes room for others. Nil knows no members.
	IsMember func(netip.Addr) bool
	// OnClosed is told of each connection that is closed for others, with the reason. Nil is told nothing. It must not call the
	// listener.
	OnClosed func(reason string)
}

// Listener accepts connections as long as there is room. For one more, another one is evicted: first one whose client has not
// shown who it is, then one that is idle, each time the oldest of the network that has most of these. A connection that is
// held stays. If there is no other, the new one is closed. It is safe for concurrent use.
type Listener struct {
	net.Listener

	options Options

	mu    sync.Mutex
	conns map[*Conn]struct{}
	// strangers are how many of them are none of members.
	strangers int
	networks  map[netip.Prefix]int
	// unproven and idle are those that may be evicted.
	unproven, idle Crowd[*Conn]
	isLingering    bool
	// empty is closed when no connection is open. Nil if nobody waits for that.
	empty chan struct{}
}

// Limit returns a listener whose connections are those of the inner one, which may be nil if nothing is accepted.
func Limit(inner net.Listener, options Options) *Listener {
	options.MaxPerNetwork = cmp.Or(options.MaxPerNetwork, math.MaxInt)
	return &Listener{Listener: inner, options: options, conns: map[*Conn]struct{}{}, networks: map[netip.Prefix]int{}}
}

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := l.newConn(accepted)
		evicted, ok := l.admit(c)
		if evicted != nil {
			evicted.abort()
		}
		if ok {
			return c, nil
		}
		_ = accepted.Close() // The client sees that it has ended.
	}
}

func (l *Listener) newConn(accepted net.Conn) *Conn {
	remote := accepted.RemoteAddr().String()
	c := &Conn{Conn: accepted, all: l, network: network.Of(remote), leave: func() {}}
	if at, err := netip.ParseAddrPort(remote); err == nil && l.options.IsMember != nil {
		if from := at.Addr().Unmap(); l.options.IsMember(from) {
			c.network, c.isMember = netip.PrefixFrom(from, from.BitLen()), true
		}
	}
	return c
}

// admit opens the connection if there is room, or if another one makes room, which must then be aborted.
func (l *Listener) admit(c *Conn) (evicted *Conn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	isNetworkFull := l.networks[c.network] >= l.options.MaxPerNetwork
	if isNetworkFull || !c.isMember && l.strangers >= l.options.Max {
		if evicted, ok = l.leaver(c.network, isNetworkFull); !ok {
			l.tell(Refused)
			return nil, false
		}
		l.tell(Evicted)
		l.remove(evicted)
	}
	l.conns[c] = struct{}{}
	l.networks[c.network]++
	if !c.isMember {
		l.strangers++
	}
	c.settle()
	return evicted, true
}

// leaver returns the connection that makes room for another one of the network. It needs the mutex.
func (l *Listener) leaver(network netip.Prefix, isNetworkFull bool) (*Conn, bool) {
	for _, crowd := range []*Crowd[*Conn]{&l.unproven, &l.idle} {
		find := crowd.Leaver
		if isNetworkFull {
			find = crowd.OldestOf
		}
		if found, ok := find(network); ok {
			return found, true
		}
	}
	return nil, false
}

func (l *Listener) tell(reason string) {
	if l.options.OnClosed != nil {
		l.options.OnClosed(reason)
	}
}

// remove ends the count of a connection. It needs the mutex.
func (l *Listener) remove(c *Conn) {
	if _, isOpen := l.conns[c]; !isOpen {
		return
	}
	delete(l.conns, c)
	c.settle()
	if !c.isMember {
		l.strangers--
	}
	if l.networks[c.network]--; l.networks[c.network] == 0 {
		delete(l.networks, c.network)
	}
	l.noticeEmpty()
}

// noticeEmpty needs the mutex.
func (l *Listener) noticeEmpty() {
	if len(l.conns) == 0 && l.empty != nil {
		close(l.empty)
		l.empty = nil
	}
}

// Empty returns a channel that is closed as soon as no connection is open.
func (l *Listener) Empty() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	empty := cmp.Or(l.empty, make(chan struct{}))
	l.empty = empty
	l.noticeEmpty()
	return empty
}

// Open returns how many connections are open.
func (l *Listener) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// Usage returns how many they are as a part of Options.Max.
func (l *Listener) Usage() float64 { return float64(l.Open()) / float64(l.options.Max) }

// Linger lets connections that the server closes from now on linger: nothing more is sent on them, but they are read, and
// count, until their clients end them too. A client that writes to a connection that is closed, were it only that it has room
// for more answers, takes it for broken, and may give up the answers that it has yet to read: an HTTP/2 client of Go does.
func (l *Listener) Linger() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isLingering = true
}

// Abort closes all connections that are open.
func (l *Listener) Abort() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Conn.Close()
		l.remove(c)
	}
}

// From returns the connection that is open from the address, or nil.
func (l *Listener) From(remote net.Addr) *Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		if c.RemoteAddr().String() == remote.String() {
			return c
		}
	}
	return nil
}
