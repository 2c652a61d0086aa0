package client

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// minSwept is how many grants are remembered at least before those that are over are looked for.
const minSwept = 64

// lineGrant names a lock that the façade has granted.
type lineGrant struct {
	namespace string
	key       v1alpha1.FullKey
	owner     string
}

func lineGrantOf(namespace string, key v1alpha1.FullKey, owner string) lineGrant {
	return lineGrant{namespace: namespace, key: key, owner: owner}
}

// lineGrants remember which locks the façade has granted. To forget one costs no more than a release by another way, so
// they go by the clock of this process. Safe for concurrent use.
type lineGrants struct {
	clock clock.PassiveClock

	mu  sync.Mutex
	all map[lineGrant]remembered
	// sweepAt is at how many grants those that are over are looked for.
	sweepAt int
}

// remembered is what is known of a grant.
type remembered struct {
	token int64
	// until is when the lock ends unless it is renewed.
	until time.Time
}

func newLineGrants(source clock.PassiveClock) *lineGrants {
	return &lineGrants{clock: source, all: map[lineGrant]remembered{}, sweepAt: minSwept}
}

// put remembers a grant, unless the façade does not tell its fencing token, as older ones may.
func (g *lineGrants) put(name lineGrant, granted *v1alpha1.Lock) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.all, name)
	if granted.Spec.FencingToken == nil {
		return
	}
	if len(g.all) >= g.sweepAt {
		g.sweep()
	}
	g.all[name] = remembered{token: *granted.Spec.FencingToken, until: g.end(granted)}
}

// sweep forgets those whose locks were neither released nor renewed, such as lost or detached ones.
func (g *lineGrants) sweep() {
	now := g.clock.Now()
	for name, known := range g.all {
		if now.After(known.until) {
			delete(g.all, name)
		}
	}
	g.sweepAt = max(minSwept, 2*len(g.all))
}

func (g *lineGrants) prolong(name lineGrant, renewed *v1alpha1.Lock) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known, ok := g.all[name]; ok {
		known.until = g.end(renewed)
		g.all[name] = known
	}
}

// find returns the fencing token of a grant, or zero.
func (g *lineGrants) find(name lineGrant) (token int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all[name].token
}

// forget forgets a grant, and no later one of the same name.
func (g *lineGrants) forget(name lineGrant, token int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all[name].token == token {
		delete(g.all, name)
	}
}

// end is when a lock ends that was granted or renewed just now.
func (g *lineGrants) end(held *v1alpha1.Lock) time.Time {
	if held.Spec.TTL == nil {
		return g.clock.Now()
	}
	return g.clock.Now().Add(held.Spec.TTL.Duration)
}
