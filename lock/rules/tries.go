package rules

import "fmt"

// tryAt is where the number of the try begins in the ID of an acquisition.
const tryAt = 28

// NthTry returns the ID, a UUID, of the nth try of one acquisition: its last eight digits count.
func NthTry(id string, n uint32) string { return fmt.Sprintf("%.*s%08x", tryAt, id, n) }

// SplitTry returns what the IDs of all tries of one acquisition share, and what tells this one: a text that
// sorts as the tries.
func SplitTry(id string) (acquisition, try string) {
	at := min(tryAt, len(id))
	return id[:at], id[at:]
}
