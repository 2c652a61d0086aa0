package limits

import (
	"math"
	"sync"

	"k8s.io/utils/clock"
)

const (
	// perNamespace is how many times the share, and the rate, of one caller the service accounts of one namespace have together.
	perNamespace = 2
	// tenth is the part of the calls in flight that is kept for [Upkeep]: one in so many.
	tenth = 10
)

// ShareOf returns a tenth of the whole, or more than any whole if it is less than ten.
func ShareOf(whole int) int {
	if whole < tenth {
		return math.MaxInt
	}
	return whole / tenth
}

// pool is a limit of all callers together, of which each has a share. It is safe for concurrent use.
type pool struct {
	whole, perCaller int
	refusals         refusals
	clock            clock.PassiveClock

	mu   sync.Mutex
	used int
	// callers and namespaces are those that use something.
	callers    map[Caller]int
	namespaces map[string]int
	full       Level
}

func newPool(whole, shares, minShare int, refusals refusals, clock clock.PassiveClock) *pool {
	perCaller := max(whole/shares, minShare)
	if shares == 1 || whole < shares {
		perCaller = math.MaxInt / perNamespace
	}
	return &pool{whole: whole, perCaller: perCaller, refusals: refusals, clock: clock, callers: map[Caller]int{}, namespaces: map[string]int{}}
}

// take takes so much for the caller, or returns the [*Error] that refuses it. Only [Upkeep] may use the last tenth.
func (p *pool) take(who Caller, amount int, cost Cost) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	exceeds := func(used, share int) bool { return used+amount > forCost(share, cost) }
	switch {
	case exceeds(p.callers[who], p.perCaller):
		return p.refusals.caller
	case exceeds(p.namespaces[who.namespace], p.perCaller*perNamespace):
		return p.refusals.namespace
	case exceeds(p.used, p.whole):
		return p.refusals.whole
	}
	p.add(who, amount)
	return nil
}

// forCost returns what calls of the cost may use of a share.
func forCost(share int, cost Cost) int {
	if cost == Upkeep {
		return share
	}
	return share - share/tenth
}

// give gives back what was taken.
func (p *pool) give(who Caller, amount int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(who, -amount)
}

// add changes what is used; it needs the mutex.
func (p *pool) add(who Caller, change int) {
	p.used += change
	p.full.Update(p.used, forCost(p.whole, Work), p.clock)
	addTo(p.callers, who, change)
	if who.namespace != "" {
		addTo(p.namespaces, who.namespace, change)
	}
}

func addTo[K comparable](used map[K]int, key K, change int) {
	used[key] += change
	if used[key] == 0 {
		delete(used, key)
	}
}

// total returns how much is used.
func (p *pool) total() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}
