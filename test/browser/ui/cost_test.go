package ui_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const (
	// still and moving are the pauses between two readings of a line that stands, and of one that moves. A busy machine takes
	// longer for the steps of a test, so that more readings are due.
	still, moving = 10 * time.Second, 2 * time.Second
)

// A viewer of a contended lock asks who waits when that changes, and rarely otherwise.
func TestALineIsReadWhenItChanges(t *testing.T) {
	f := newFacade(t, nil)
	held, begun := f.hold("shop", "a", "alice", time.Hour), time.Now()
	f.wait("shop", "a", "bob", "carol", "dave")
	s := open(t, f.url()+"#/namespaces/shop/locks/a")
	s.shows(".waiters li", "dave")
	readings := func() int {
		count := 0
		for _, path := range f.requested() {
			if strings.Contains(path, "/waiters") {
				count++
			}
		}
		return count
	}
	// since returns how many readings there were since there had been so many, and how many were due by the pause.
	since := func(former int, begun time.Time, pause time.Duration) (got, due int) {
		return readings() - former, int(time.Since(begun) / pause)
	}

	// The count comes half a second after the lock at most, and is a change. Renewals are none.
	for range 30 {
		f.renew(held, time.Hour)
		pause(t, 100*time.Millisecond)
	}
	if got, due := since(0, begun, still); got > 2+due {
		t.Errorf("%d readings of a line that stood still for three seconds", got)
	}
	first := readings()
	begun = time.Now()
	f.leave("a", 1)
	s.hides(".waiters li", "bob")
	if got, due := since(first, begun, still); got < 1 || got > 1+due {
		t.Errorf("%d readings because of one change", got)
	}

	// In a line that moves all the time, for five seconds and until it was read twice.
	first, begun = readings(), time.Now()
	last := 0
	for last < 25 || readings() < first+2 {
		if time.Since(begun) > 2*patience {
			t.Fatalf("%d readings of a line that moves all the time", readings()-first)
		}
		last++
		f.wait("shop", "a", fmt.Sprintf("late-%d", last))
		pause(t, 200*time.Millisecond)
	}
	if got, due := since(first, begun, moving); got > 2+due {
		t.Errorf("%d readings of a line that moved for %s", got, time.Since(begun))
	}
	s.shows(".waiters li", fmt.Sprintf("late-%d", last))

	// Another caller in the place of one that left is no change of the count.
	first, begun = readings(), time.Now()
	f.mu.Lock()
	f.waiters[0].Holder = "erin"
	f.mu.Unlock()
	s.shows(".waiters li", "erin")
	if got, due := since(first, begun, still); got > 2+due {
		t.Errorf("%d readings of a line whose count stood still", got)
	}
	s.quiet(f.address)
}
