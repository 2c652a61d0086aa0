package line

import (
	"sync"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// outcome is how a try to wait in the line of one home has ended.
type outcome struct {
	lock *v1alpha1.Lock
	// result is done, timedOut, declined, unavailable or leaving.
	result result
	held   *lock.HeldError
	// heldFor is for how long at least the lock of another home is held after it was taken, and heldUntil when that
	// is over; zero for a lock that this replica has granted.
	heldFor   time.Duration
	heldUntil time.Time
	// err is that of this replica's own engine, or why the result is unavailable.
	err error
}

// mailbox receives the outcome of one wait, unless it is closed before.
type mailbox struct {
	filled chan struct{}
	// doubt is called if the home may not have heard that the caller has left, or has made a write whose end it does not
	// know.
	doubt func()

	mu       sync.Mutex
	isClosed bool
	// offered is a lock that this replica has said to take, and of which the home has not heard yet.
	offered *v1alpha1.Lock
	// takenAt is when it has said so.
	takenAt time.Time
	outcome *outcome
	// stood is since when the caller has its place; zero if the home has not said so.
	stood time.Time
}

func newMailbox(doubt func()) *mailbox { return &mailbox{filled: make(chan struct{}), doubt: doubt} }

// offer reports whether the caller still wants the lock. If so, the mailbox gets an outcome, and cannot be
// closed before.
func (m *mailbox) offer(granted *v1alpha1.Lock, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isClosed || m.outcome != nil {
		return false
	}
	m.offered, m.takenAt = granted, now
	return true
}

// put reports false if the caller has left, or has an outcome. Done without a lock means the one that was offered.
func (m *mailbox) put(result outcome) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isClosed || m.outcome != nil {
		return false
	}
	if result.result == done && result.lock == nil {
		if result.lock = m.offered; result.lock == nil {
			result.result = declined // The home is of another version.
		}
		result.heldUntil = m.takenAt.Add(result.heldFor)
	}
	m.outcome = &result
	close(m.filled)
	return true
}

// close makes put fail. It returns the outcome that came before, or nil. If a lock is being taken, close does
// nothing and isDue is true: the outcome follows.
func (m *mailbox) close() (before *outcome, isDue bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.outcome == nil && m.offered != nil {
		return nil, true
	}
	m.isClosed = true
	return m.outcome, false
}

// place records since when the caller has its place.
func (m *mailbox) place(stood time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stood = stood
}

// placed returns since when the caller has its place, if the home has said so: then it lets the caller wait.
func (m *mailbox) placed() (stood time.Time, isPlaced bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stood, !m.stood.IsZero()
}
