// Package rates has a rate for each of many keys that clients choose, in bounded memory.
package rates

import (
	"time"

	"golang.org/x/time/rate"
)

// sweepPause is the shortest time between two looks at all rates for those that can be forgotten, so that a
// client which fills a map does not make each further call cost as much.
const sweepPause = time.Second

// Map has the rates of keys. Not safe for concurrent use.
type Map[K comparable] struct {
	max   int
	fresh func() *rate.Limiter
	// known are remembered as long as they differ from a new one, or there is room.
	known map[K]*rate.Limiter
	swept time.Time
}

// NewMap returns a map in which so many keys have a rate of their own at a time, that of fresh, which
// permits a burst. The keys beyond share the rate of the zero key.
func NewMap[K comparable](most int, fresh func() *rate.Limiter) *Map[K] {
	return &Map[K]{max: most, fresh: fresh, known: map[K]*rate.Limiter{}}
}

// Of returns the rate of the key.
func (m *Map[K]) Of(key K, now time.Time) *rate.Limiter {
	if known, ok := m.known[key]; ok {
		return known
	}
	if len(m.known) >= m.max && now.Sub(m.swept) >= sweepPause {
		m.swept = now
		for each, limiter := range m.known {
			if limiter.TokensAt(now) >= float64(limiter.Burst()) {
				delete(m.known, each) // It is what a new one would be.
			}
		}
	}
	if len(m.known) >= m.max {
		var shared K
		if known, ok := m.known[shared]; ok {
			return known
		}
		key = shared
	}
	m.known[key] = m.fresh()
	return m.known[key]
}

// Len is how many rates are remembered.
func (m *Map[K]) Len() int { return len(m.known) }
