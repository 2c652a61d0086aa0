package limits

import "time"

// Bounds of a [Table].
const (
	// maxEntries is how many callers are remembered at most.
	maxEntries = 1 << 16
	// sweepEntries are looked at when one is added, so that more idle ones go than new ones come.
	sweepEntries = 4
)

// Table remembers something of each caller for as long as it matters. The memory is bounded:
// adding an entry removes idle ones and, at 65,536, any. It needs no goroutine, and a mutex of
// its owner.
type Table[K comparable, V any] struct {
	// New returns the entry of a caller that is not known.
	New func() V
	// IsIdle reports whether an entry says no more than a new one would.
	IsIdle  func(V, time.Time) bool
	entries map[K]V
}

// Get returns the entry of the key.
func (t *Table[K, V]) Get(key K, now time.Time) V {
	if found, ok := t.entries[key]; ok {
		return found
	}
	t.sweep(now)
	if t.entries == nil {
		t.entries = map[K]V{}
	}
	added := t.New()
	t.entries[key] = added
	return added
}

// sweep looks at a few entries, whichever the map shows first, which is at random.
func (t *Table[K, V]) sweep(now time.Time) {
	looked := 0
	for key, entry := range t.entries {
		if t.IsIdle(entry, now) || len(t.entries) >= maxEntries {
			delete(t.entries, key)
		}
		looked++
		if looked == sweepEntries {
			return
		}
	}
}
