package server

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"forrst.dev/lock-operator/webhook/rates"
)

const (
	// namespaceShare is the divisor of the rate of one network that gives that of the reviews of one
	// namespace: the network may be that of an API server, which sends the reviews of all tenants.
	namespaceShare = 4
	// maxNetworks and maxNamespaces have a rate of their own at a time; of namespaces, in all networks together. Those beyond
	// share one.
	maxNetworks   = 4096
	maxNamespaces = 1000
)

// requests are the rates of requests to the API server that reviews may cost: those of all networks, of
// each network, and in it of each namespace. Safe for concurrent use.
type requests struct {
	mu         sync.Mutex
	ofAll      *rate.Limiter
	ofNetworks *rates.Map[netip.Prefix]
	// ofNamespaces differ from a new one for a second at most. A network adds no more of them than it has
	// requests.
	ofNamespaces *rates.Map[tenant]
}

func newRequests(perSecond int) *requests {
	// Each permits so many requests each second, and as many at once.
	permitting := func(perSecond int) func() *rate.Limiter {
		return func() *rate.Limiter { return rate.NewLimiter(rate.Limit(perSecond), perSecond) }
	}
	return &requests{
		ofAll:        permitting(perSecond)(),
		ofNetworks:   rates.NewMap[netip.Prefix](maxNetworks, permitting(perSecond/networkShare)),
		ofNamespaces: rates.NewMap[tenant](maxNamespaces, permitting(max(1, perSecond/networkShare/namespaceShare))),
	}
}

// allow takes one request, and reports whether any was left. A review without a namespace counts for its
// network alone.
func (r *requests) allow(of tenant, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ofNetwork := r.ofNetworks.Of(of.network, now)
	if ofNetwork.TokensAt(now) < 1 || r.ofAll.TokensAt(now) < 1 {
		return false // Before a namespace is remembered.
	}
	if of.namespace != "" && !r.ofNamespaces.Of(of, now).AllowN(now, 1) {
		return false
	}
	return ofNetwork.AllowN(now, 1) && r.ofAll.AllowN(now, 1)
}
