package peers

import (
	"net"
	"net/netip"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"forrst.dev/lock-operator/lock/network"
)

const (
	// maxStrangers bounds the connections that are open of strangers, and maxPerOrigin those of one origin: replicas
	// behind one address are few, and each has one.
	maxStrangers = 256
	maxPerOrigin = 16
	// reviewsPerSecond is how often the tokens of one origin are reviewed, each time by a request to the API server,
	// and reviewsAtOnce how often at once.
	reviewsPerSecond = 5
	reviewsAtOnce    = 20
	// maxOrigins bounds the memory. The one that has not asked for the longest time is forgotten first.
	maxOrigins = 4096
)

// origin is what connections and reviews are counted by: those of strangers keep no replica out.
type origin struct {
	// from is the address of a member, or the network of a stranger.
	from netip.Prefix
	// isMember says that a replica has the address, as far as this one knows.
	isMember bool
}

// originOf returns the origin of an address with a port. A nil isMember knows no members.
func originOf(address string, isMember func(netip.Addr) bool) origin {
	if at, err := netip.ParseAddrPort(address); err == nil && isMember != nil {
		if from := at.Addr().Unmap(); isMember(from) {
			return origin{netip.PrefixFrom(from, from.BitLen()), true}
		}
	}
	return origin{from: network.Of(address)}
}

// boundedListener closes connections that are too many as soon as they come. Safe for concurrent use.
type boundedListener struct {
	net.Listener
	isMember func(netip.Addr) bool

	mu        sync.Mutex
	strangers int
	by        map[origin]int
}

func boundListener(listener net.Listener, isMember func(netip.Addr) bool) *boundedListener {
	return &boundedListener{Listener: listener, isMember: isMember, by: map[origin]int{}}
}

// Accept implements [net.Listener].
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		connection, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		of := originOf(connection.RemoteAddr().String(), l.isMember)
		if l.add(of) {
			return &boundedConnection{Conn: connection, end: sync.OnceFunc(func() { l.remove(of) })}, nil
		}
		_ = connection.Close() // It was not used.
	}
}

func (l *boundedListener) add(of origin) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by[of] >= maxPerOrigin || !of.isMember && l.strangers >= maxStrangers {
		return false
	}
	if !of.isMember {
		l.strangers++
	}
	l.by[of]++
	return true
}

func (l *boundedListener) remove(of origin) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !of.isMember {
		l.strangers--
	}
	l.by[of]--
	if l.by[of] == 0 {
		delete(l.by, of)
	}
}

// boundedConnection is one of a [boundedListener].
type boundedConnection struct {
	net.Conn

	end func()
}

// Close implements [net.Conn].
func (c *boundedConnection) Close() error {
	c.end()
	return c.Conn.Close()
}

// reviewRates bound how often tokens are reviewed for each origin, so that one of them does not keep the replicas
// of others out. Safe for concurrent use.
type reviewRates struct {
	clock clock.PassiveClock

	mu sync.Mutex
	by *lru.Cache
}

func newReviewRates(clock clock.PassiveClock) *reviewRates {
	return &reviewRates{clock: clock, by: lru.New(maxOrigins)}
}

// permits reports whether a token of the origin may be reviewed now.
func (r *reviewRates) permits(of origin) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, _ := r.by.Get(of)
	limiter, isKnown := found.(*rate.Limiter)
	if !isKnown {
		limiter = rate.NewLimiter(reviewsPerSecond, reviewsAtOnce)
		r.by.Add(of, limiter)
	}
	return limiter.AllowN(r.clock.Now(), 1)
}
