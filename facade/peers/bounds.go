package peers

import (
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

// origin is what reviews are counted by: those of strangers keep no replica out.
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
