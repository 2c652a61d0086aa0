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
	// maxNamespaces have a rate of their own at a time, in all networks together. Those beyond share one.
	maxNamespaces = 1000
)

// requests are the rates of requests to the API server that reviews may cost: those of all networks, of
// each network, and in it of each namespace. Safe for concurrent use.
type requests struct {
	perSecond int

	// mu guards the rates of networks, too.
	mu    sync.Mutex
	ofAll *rate.Limiter
	// ofNamespaces differ from a new one for a second at most. A network adds no more of them than it has
	// requests.
	ofNamespaces *rates.Map[namespaceOf]
}

// namespaceOf is a namespace, as a network names it.
type namespaceOf struct {
	network   netip.Prefix
	namespace string
}

func newRequests(perSecond int) *requests {
	ofNamespace := func() *rate.Limiter { return newRate(max(1, perSecond/networkShare/namespaceShare)) }
	return &requests{perSecond: perSecond, ofAll: newRate(perSecond), ofNamespaces: rates.NewMap[namespaceOf](maxNamespaces, ofNamespace)}
}

// newRate permits so many requests each second, and as many at once.
func newRate(perSecond int) *rate.Limiter { return rate.NewLimiter(rate.Limit(perSecond), perSecond) }

// ofNetwork returns the rate of one network.
func (r *requests) ofNetwork() *rate.Limiter { return newRate(r.perSecond / networkShare) }

// allow takes one request, and reports whether any was left. A review without a namespace counts for its
// network alone.
func (r *requests) allow(of *network, namespace string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of.requests.TokensAt(now) < 1 || r.ofAll.TokensAt(now) < 1 {
		return false // Before a namespace is remembered.
	}
	if namespace != "" && !r.ofNamespaces.Of(namespaceOf{of.prefix, namespace}, now).AllowN(now, 1) {
		return false
	}
	return of.requests.AllowN(now, 1) && r.ofAll.AllowN(now, 1)
}
