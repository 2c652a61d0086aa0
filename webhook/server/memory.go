package server

import (
	"container/list"
	"context"
	"net/netip"
	"sync"
)

// tenant is on whose account a review takes memory.
type tenant struct {
	// isVerified says that the sender is an API server, whatever its network. The namespace counts alone.
	isVerified bool
	// network is that of a sender that is not verified.
	network netip.Prefix
	// namespace is that of the review, as its text has it. Empty if it has none, or is not known yet.
	namespace string
}

// memory is what reviews may take at a time. A claim that finds none left waits, and what is given back
// goes to the network, and in it to the namespace, that has the least with its claim. So one of them with
// many or large reviews keeps another one waiting for about as long as one of its reviews takes. It is
// safe for concurrent use.
type memory struct {
	max int64
	// maxOfNetwork bounds the claims of one network that is not verified.
	maxOfNetwork int64

	mu   sync.Mutex
	left int64
	// ofNetworks and ofTenants are what they have taken.
	ofNetworks map[netip.Prefix]int64
	ofTenants  map[tenant]int64
	// waiting are the claims, the oldest first.
	waiting list.List
	// reserved is the claim that gets what is given back until it is granted or gone. Nil means none.
	reserved *list.Element
}

// claim is a part of the memory that is asked for.
type claim struct {
	of      tenant
	bytes   int64
	granted chan struct{}
}

// newMemory returns so much memory, of which a network that is not verified gets its share.
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
	if of.isVerified {
		return m.max
	}
	return m.maxOfNetwork
}

// take takes memory until it is given back, all of it or none. It waits until ctx ends; one that has
// ended only ends the wait. The error is errNoMemory.
func (m *memory) take(ctx context.Context, of tenant, bytes int64) error {
	asked := &claim{of: of, bytes: bytes, granted: make(chan struct{})}
	m.mu.Lock()
	place := m.waiting.PushBack(asked)
	m.grant()
	if ctx.Err() == nil && !asked.isGranted() {
		m.mu.Unlock()
		select {
		case <-asked.granted:
		case <-ctx.Done():
		}
		m.mu.Lock()
	}
	defer m.mu.Unlock()
	if asked.isGranted() {
		return nil
	}
	m.remove(place)
	m.grant() // It may have kept others waiting.
	return errNoMemory
}

// isGranted needs the mutex of the memory.
func (c *claim) isGranted() bool {
	select {
	case <-c.granted:
		return true
	default:
		return false
	}
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
	addTo(m.ofNetworks, of.network, bytes)
	addTo(m.ofTenants, of, bytes)
}

func addTo[K comparable](taken map[K]int64, key K, bytes int64) {
	taken[key] += bytes
	if taken[key] == 0 {
		delete(taken, key)
	}
}

// grant serves claims until there is not enough left for the next one. That one keeps its turn if it asks for
// more than its tenant has: small claims of others, of which one or another always comes first, would starve
// it. A tenant that has as much already may be overtaken. It needs the mutex.
func (m *memory) grant() {
	for {
		place := m.reserved
		if place == nil {
			place = m.next()
		}
		if place == nil {
			return
		}
		next := place.Value.(*claim)
		if next.bytes > m.left {
			if next.bytes > m.ofTenants[next.of] {
				m.reserved = place
			}
			return
		}
		m.remove(place)
		m.add(next.of, next.bytes)
		close(next.granted)
	}
}

// remove ends the wait of a claim. It needs the mutex.
func (m *memory) remove(place *list.Element) {
	if m.reserved == place {
		m.reserved = nil
	}
	m.waiting.Remove(place)
}

// next returns the claim whose network and namespace would have the least with it, the oldest of equal
// ones, or nil if no network may have more. It needs the mutex.
func (m *memory) next() (best *list.Element) {
	var ofNetwork, ofTenant int64
	for place := m.waiting.Front(); place != nil; place = place.Next() {
		asked := place.Value.(*claim)
		network, namespace := int64(0), m.ofTenants[asked.of]+asked.bytes
		if !asked.of.isVerified {
			if network = m.ofNetworks[asked.of.network] + asked.bytes; network > m.maxOfNetwork {
				continue
			}
		}
		if best == nil || network < ofNetwork || network == ofNetwork && namespace < ofTenant {
			best, ofNetwork, ofTenant = place, network, namespace
		}
	}
	return best
}
