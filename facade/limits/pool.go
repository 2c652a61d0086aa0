package limits

import (
	"math"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// perNamespace is how many times the share, and the rate, of one caller the service accounts of one namespace have together.
	perNamespace = 2
	// tenth is the part of the requests in flight that is kept for [Upkeep]: one in so many.
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

// butTenth returns a pool of all but a tenth of the whole and of each share.
func (p *pool) butTenth() *pool {
	but := func(share int) int { return share - share/tenth }
	return &pool{
		whole: but(p.whole), perCaller: but(p.perCaller), refusals: p.refusals, clock: p.clock, callers: map[Caller]int{}, namespaces: map[string]int{},
	}
}

// take takes so much for the caller, or returns the [*Error] that refuses it.
func (p *pool) take(who Caller, amount int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.callers[who]+amount > p.perCaller:
		return p.refusals.caller
	case p.namespaces[who.namespace]+amount > p.perCaller*perNamespace:
		return p.refusals.namespace
	case p.used+amount > p.whole:
		return p.refusals.whole
	}
	p.add(who, amount)
	return nil
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
	p.full.Update(p.used, p.whole, p.clock)
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

// saturated returns for how long the whole has been used up, see [Level.For].
func (p *pool) saturated() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.full.For(p.clock.Now())
}
