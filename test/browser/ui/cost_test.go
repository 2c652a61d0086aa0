package ui_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A viewer of a contended lock asks who waits when that changes, and rarely otherwise.
func TestALineIsReadWhenItChanges(t *testing.T) {
	f := newFacade(t, nil)
	held := f.hold("shop", "a", "alice", time.Hour)
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

	// The count comes half a second after the lock at most, and is a change. Renewals are none.
	for range 30 {
		f.renew(held, time.Hour)
		pause(t, 100*time.Millisecond)
	}
	first := readings()
	if first > 2 {
		t.Errorf("%d readings of a line that stood still for three seconds", first)
	}
	f.leave("a", 1)
	s.hides(".waiters li", "bob")
	if got := readings(); got != first+1 {
		t.Errorf("%d readings because of one change", got-first)
	}

	// In a line that moves all the time.
	first = readings()
	for i := range 25 {
		f.wait("shop", "a", fmt.Sprintf("late-%d", i))
		pause(t, 200*time.Millisecond)
	}
	if got := readings() - first; got < 2 || got > 4 {
		t.Errorf("%d readings of a line that moved for five seconds", got)
	}
	s.shows(".waiters li", "late-24")

	// Another caller in the place of one that left is no change of the count.
	first = readings()
	f.mu.Lock()
	f.waiters[0].Holder = "erin"
	f.mu.Unlock()
	s.shows(".waiters li", "erin")
	if got := readings() - first; got > 2 {
		t.Errorf("%d readings of a line whose count stood still", got)
	}
	s.quiet(f.address)
}
