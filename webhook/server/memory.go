package server

import (
	"context"
	"net/netip"
	"slices"
	"sync"
)

// tenant is on whose account a review takes memory.
type tenant struct {
	// network is that of the sender. Zero if the sender is an API server, whatever its network: the namespace counts alone.
	network netip.Prefix
	// namespace is that of the review, as its text has it. Empty if it has none, or is not known yet.
	namespace string
}

// memory is what reviews may take at a time. A claim that finds none left waits, and what is given back
// goes to the network, and in it to the namespace, that has the least with its claim. So one of them with
// many or large reviews keeps another one waiting for about as long as one of its reviews takes. It is
// safe for concurrent use.
type memory struct {
	// max bounds all claims, and maxOfNetwork those of one network that is not zero.
	max, maxOfNetwork int64

	mu   sync.Mutex
	left int64
	// ofNetworks and ofTenants are what they have taken.
	ofNetworks map[netip.Prefix]int64
	ofTenants  map[tenant]int64
	// waiting are the claims, the oldest first.
	waiting []*claim
	// reserved is the claim that gets what is given back until it is granted or gone. Nil means none.
	reserved *claim
}

// claim is a part of the memory that is asked for.
type claim struct {
	of    tenant
	bytes int64
	// granted is closed as soon as the claim is.
	granted chan struct{}
}

func newMemory(most int64) *memory {
	return &memory{
		max: most, maxOfNetwork: most / networkShare, left: most,
		ofNetworks: map[netip.Prefix]int64{}, ofTenants: map[tenant]int64{},
	}
}

// usage returns how much of the memory is taken, from 0 to 1.
func (m *memory) usage() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return float64(m.max-m.left) / float64(m.max)
}

// limitOf returns how much the tenant can ever get.
func (m *memory) limitOf(of tenant) int64 {
	if !of.network.IsValid() {
		return m.max
	}
	return m.maxOfNetwork
}

// take takes memory until it is given back, all of it or none. It waits until ctx ends. The error is errNoMemory.
func (m *memory) take(ctx context.Context, of tenant, bytes int64) error {
	asked := &claim{of, bytes, make(chan struct{})}
	m.mu.Lock()
	m.waiting = append(m.waiting, asked)
	m.grant()
	m.mu.Unlock()
	select {
	case <-asked.granted:
		return nil
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.waiting, asked) {
		return nil // It has been granted meanwhile.
	}
	m.remove(asked)
	m.grant() // It may have kept others waiting.
	return errNoMemory
}

// give gives memory back.
func (m *memory) give(of tenant, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(of, -bytes)
	m.grant()
}

// add needs the mutex.
func (m *memory) add(of tenant, bytes int64) {
	m.left -= bytes
	m.ofNetworks[of.network] += bytes
	m.ofTenants[of] += bytes
	if m.ofTenants[of] == 0 {
		delete(m.ofTenants, of)
	}
	if m.ofNetworks[of.network] == 0 {
		delete(m.ofNetworks, of.network)
	}
}

// grant serves claims until there is not enough left for the next one. That one keeps its turn if it asks for
// more than its tenant has: small claims of others, of which one or another always comes first, would starve
// it. A tenant that has as much already may be overtaken. It needs the mutex.
func (m *memory) grant() {
	for {
		next := m.reserved
		if next == nil {
			next = m.next()
		}
		switch {
		case next == nil:
			return
		case next.bytes > m.left:
			if next.bytes > m.ofTenants[next.of] {
				m.reserved = next
			}
			return
		}
		m.remove(next)
		m.add(next.of, next.bytes)
		close(next.granted)
	}
}

// remove ends the wait of a claim. It needs the mutex.
func (m *memory) remove(gone *claim) {
	if m.reserved == gone {
		m.reserved = nil
	}
	m.waiting = slices.DeleteFunc(m.waiting, func(each *claim) bool { return each == gone })
}

// next returns the claim whose network and namespace would have the least with it, the oldest of equal
// ones, or nil if no network may have more. It needs the mutex.
func (m *memory) next() (best *claim) {
	var ofNetwork, ofTenant int64
	for _, asked := range m.waiting {
		network, namespace := int64(0), m.ofTenants[asked.of]+asked.bytes
		if asked.of.network.IsValid() {
			if network = m.ofNetworks[asked.of.network] + asked.bytes; network > m.maxOfNetwork {
				continue
			}
		}
		if best == nil || network < ofNetwork || network == ofNetwork && namespace < ofTenant {
			best, ofNetwork, ofTenant = asked, network, namespace
		}
	}
	return best
}
