//go:build timing

package rest

import (
	"math"
	"strconv"
	"testing"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// A tenant may have all locks of a namespace expire one by one, and all streams of it look each time.
func TestTimingAnExpiryDoesNotLookAtAllLocks(t *testing.T) {
	// With a look at all locks, among a hundred times as many they take a hundred times as long.
	const few, many, most = 1000, 100 * 1000, 50
	ofFew, ofMany := timeOfExpiries(t, few), timeOfExpiries(t, many)
	if ofMany > most*ofFew {
		t.Errorf("expiries take %s among %d locks, and %s among %d", ofFew, few, ofMany, many)
	}
}

// timeOfExpiries returns how long it takes at best that some of so many locks expire one by one.
func timeOfExpiries(t *testing.T, locks int) time.Duration {
	t.Helper()
	at := func(number int) time.Time { return noon.Add(time.Hour + time.Duration(number)*time.Millisecond) }
	present := make([]*v1alpha1.Lock, locks)
	for number := range present {
		present[number] = named(strconv.Itoa(number), number, 0)
		present[number].Spec.ExpireTime = new(v1alpha1.NewTimestamp(at(number)))
	}
	told := begin(present, all, noon)
	const rounds, each = 10, 50
	best := time.Duration(math.MaxInt64)
	for round := range rounds {
		start := time.Now()
		for number := round * each; number < (round+1)*each; number++ {
			if ended := told.expire(at(number)); len(ended) != 1 || ended[0].lock != present[number] {
				t.Fatalf("%d: got %v", number, ended)
			}
		}
		best = min(best, time.Since(start))
	}
	return best
}
