package server

import (
	"cmp"
	"container/list"
	"context"
	"crypto/tls"
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/lock/network"
)

// Idle connections are closed early when three quarters of all are open.
const (
	// idleNearLimit is how long a connection may then be idle, and unauthenticatedNearLimit how long
	// one may take until its first call is authenticated.
	idleNearLimit            = 5 * time.Second
	unauthenticatedNearLimit = 2 * time.Second
	// idleAtLimit is how long it may be idle when no other one could be opened otherwise. The next
	// request of a busy client comes sooner.
	idleAtLimit = time.Second
	// maxClosed is how many are closed for each that is opened.
	maxClosed = 16
)

// closeReason says why a connection was closed before its time.
type closeReason int

const (
	// closedForAddress means that too many others of its address were open.
	closedForAddress closeReason = iota
	// closedUnauthenticated means that it had no authenticated call.
	closedUnauthenticated
	// closedIdle means that it had no call at the moment.
	closedIdle
	closeReasons
)

func (r closeReason) String() string {
	return [...]string{"address", "unauthenticated", "idle"}[r]
}

// connections bounds how many connections are open, in total and of each address (of IPv6, each
// network of 64 bits), and chooses which ones are closed for others. It is safe for concurrent use.
type connections struct {
	max, maxPerAddress int
	clock              clock.Clock
	// ended gets a value when a connection has ended.
	ended chan struct{}

	mu        sync.Mutex
	count     int
	addresses map[netip.Prefix]*addressConnections
	// unauthenticated are those without an authenticated call, in the order in which they were opened.
	unauthenticated list.List
	// idle are the others that have no call, in the order in which their last call ended.
	idle fifo[connection]
	// isFull tells since when all connections have calls.
	isFull limits.Level
	closed [closeReasons]uint64

	requests  *requests
	lingering lingering
}

// addressConnections are those of one address.
type addressConnections struct {
	count           int
	unauthenticated list.List
}

func newConnections(maximum, maxPerAddress int, clock clock.Clock) *connections {
	share := cmp.Or(maxPerAddress, limits.ShareOf(maximum))
	if share >= maximum {
		share = math.MaxInt // What is beyond the whole waits, and is not refused.
	}
	return &connections{
		max: maximum, maxPerAddress: share, clock: clock,
		ended: make(chan struct{}, 1), addresses: map[netip.Prefix]*addressConnections{}, requests: newRequests(maximum, share, clock),
		lingering: lingering{max: maximum},
	}
}

// connection is an open connection. Its lists need the mutex of all connections.
type connection struct {
	net.Conn

	all     *connections
	network netip.Prefix
	// isAuthenticated says that a call of the connection was authenticated.
	isAuthenticated atomic.Bool

	// since is when it was opened or became idle.
	since time.Time
	// unauthenticated and ofAddress are its places in these lists, or nil.
	unauthenticated, ofAddress *list.Element
	// idle is its place among the idle ones.
	idle   place[connection]
	isOver bool

	// isClosed says that the server has ended it. It may linger.
	isClosed atomic.Bool
	// reading is held by who reads it before that.
	reading sync.Mutex
}

// Read implements [net.Conn]. A request that comes after the end could not be answered, so it must not be served.
func (c *connection) Read(p []byte) (int, error) {
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

// Close implements [net.Conn]. While the server stops, the connection lingers.
func (c *connection) Close() error {
	c.all.mu.Lock()
	c.all.remove(c)
	c.all.mu.Unlock()
	if c.isClosed.Swap(true) || c.all.lingering.add(c) {
		return nil
	}
	return c.Conn.Close()
}

// remove forgets a connection. It needs the mutex.
func (t *connections) remove(c *connection) {
	if c.isOver {
		return
	}
	c.isOver = true
	t.unlist(c)
	address := t.addresses[c.network]
	address.count--
	if address.count == 0 {
		delete(t.addresses, c.network)
	}
	t.count--
	t.updateFull()
	select {
	case t.ended <- struct{}{}:
	default:
	}
}

// unlist takes a connection from all lists. It needs the mutex.
func (t *connections) unlist(c *connection) {
	if c.unauthenticated != nil {
		t.unauthenticated.Remove(c.unauthenticated)
		t.addresses[c.network].unauthenticated.Remove(c.ofAddress)
	}
	c.idle.remove()
	c.unauthenticated, c.ofAddress = nil, nil
}

// updateFull needs the mutex.
func (t *connections) updateFull() {
	t.isFull.Update(t.count-t.unauthenticated.Len()-t.idle.count, t.max, t.clock)
}

// authenticated records that a call of the connection was authenticated.
func (c *connection) authenticated() {
	if c.isAuthenticated.Load() {
		return
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.isAuthenticated.Store(true)
	c.all.unlist(c)
	c.all.updateFull()
}

// setState follows the state of a connection. It is a [http.Server] ConnState.
func (t *connections) setState(of net.Conn, state http.ConnState) {
	c := connectionOf(of)
	if c == nil || !c.isAuthenticated.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.isOver {
		return
	}
	t.unlist(c)
	if state == http.StateIdle {
		c.since = t.clock.Now()
		t.idle.pushBack(&c.idle, c)
	}
	t.updateFull()
}

// connectionOf returns the connection below TLS, or nil if it is not one of a [limitedListener].
func connectionOf(c net.Conn) *connection {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	found, _ := c.(*connection)
	return found
}

// connectionKey is the key of the connection in the contexts of its requests.
type connectionKey struct{}

func withConnection(ctx context.Context, c net.Conn) context.Context {
	of := connectionOf(c)
	if of == nil {
		return ctx
	}
	return context.WithValue(ctx, connectionKey{}, of)
}

// admission is what came of a try to open a connection.
type admission struct {
	isOpen, isRefused bool
	// closed are to be closed for it.
	closed []*connection
	// wait is how long it takes at most until another try may succeed. Zero means until a
	// connection has ended.
	wait time.Duration
}

// tryOpen opens the connection, if need be in place of others.
func (t *connections) tryOpen(c *connection) (a admission) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	drop := func(c *connection, reason closeReason) {
		t.remove(c)
		t.closed[reason]++
		a.closed = append(a.closed, c)
	}
	// The programs behind one address may belong to different users: one that shows no
	// credentials gives way.
	if address := t.addresses[c.network]; address != nil && address.count >= t.maxPerAddress {
		oldest := oldestOf(&address.unauthenticated)
		if oldest == nil {
			t.closed[closedForAddress]++
			a.isRefused = true
			return a
		}
		drop(oldest, closedUnauthenticated)
	}
	if t.count >= t.max-t.max/4 {
		for len(a.closed) < maxClosed && age(oldestOf(&t.unauthenticated), now) >= unauthenticatedNearLimit {
			drop(oldestOf(&t.unauthenticated), closedUnauthenticated)
		}
		for len(a.closed) < maxClosed && age(t.idle.oldest(), now) >= idleNearLimit {
			drop(t.idle.oldest(), closedIdle)
		}
	}
	if t.count >= t.max {
		switch oldest := t.idle.oldest(); {
		case t.unauthenticated.Len() > 0:
			drop(oldestOf(&t.unauthenticated), closedUnauthenticated)
		case age(oldest, now) >= idleAtLimit:
			drop(oldest, closedIdle)
		default:
			if oldest != nil {
				a.wait = idleAtLimit - age(oldest, now)
			}
			return a
		}
	}
	t.add(c, now)
	a.isOpen = true
	return a
}

// oldestOf returns the first connection of a list, or nil.
func oldestOf(all *list.List) *connection {
	if all.Len() == 0 {
		return nil
	}
	oldest, _ := all.Front().Value.(*connection)
	return oldest
}

// age is for how long a connection has been open or idle. It is less than zero if there is none.
func age(c *connection, now time.Time) time.Duration {
	if c == nil {
		return -1
	}
	return max(0, now.Sub(c.since))
}

// add needs the mutex.
func (t *connections) add(c *connection, now time.Time) {
	address := t.addresses[c.network]
	if address == nil {
		address = &addressConnections{}
		t.addresses[c.network] = address
	}
	address.count++
	t.count++
	c.since = now
	c.unauthenticated, c.ofAddress = t.unauthenticated.PushBack(c), address.unauthenticated.PushBack(c)
	t.updateFull()
}

// open returns how many connections are open.
func (t *connections) open() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}

// full returns for how long all connections have had calls, see [limits.Level.For].
func (t *connections) full() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isFull.For(t.clock.Now())
}

// closedFor returns how many connections were closed for a reason.
func (t *connections) closedFor(reason closeReason) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed[reason]
}

// limitedListener accepts connections within the bounds.
type limitedListener struct {
	net.Listener

	connections *connections
	closeOnce   sync.Once
	isClosed    chan struct{}
}

func (t *connections) limit(listener net.Listener) net.Listener {
	return &limitedListener{Listener: listener, connections: t, isClosed: make(chan struct{})}
}

// Close implements [net.Listener].
func (l *limitedListener) Close() error {
	l.closeOnce.Do(func() { close(l.isClosed) })
	return l.Listener.Close()
}

// Accept implements [net.Listener]. At the bound it waits until a connection ends or may be closed.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		opened := &connection{Conn: accepted, all: l.connections, network: network.Of(accepted.RemoteAddr().String())}
		if l.open(opened) {
			return opened, nil
		}
		// The client sees that its connection has ended.
		_ = accepted.Close()
	}
}

// open reports whether the connection may be used.
func (l *limitedListener) open(c *connection) bool {
	for {
		tried := l.connections.tryOpen(c)
		for _, closed := range tried.closed {
			_ = closed.Conn.Close() // It has gone all the same.
		}
		if tried.isOpen || tried.isRefused {
			return tried.isOpen
		}
		if !l.await(tried.wait) {
			return false
		}
	}
}

// await waits until another try may succeed. It reports false if the listener is closed before.
func (l *limitedListener) await(wait time.Duration) bool {
	var isDue <-chan time.Time
	if wait > 0 {
		timer := l.connections.clock.NewTimer(wait)
		defer timer.Stop()
		isDue = timer.C()
	}
	select {
	case <-l.connections.ended:
	case <-isDue:
	case <-l.isClosed:
		return false
	}
	return true
}
