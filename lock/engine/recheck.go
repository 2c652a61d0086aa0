package engine

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// The head of a queue reads its lock again for what the watch may not have shown: an open watch may be silent, late, or
// have lost an event (kubernetes#123072), and nothing tells. Each pause is up to a quarter shorter, so that the queues of
// all replicas do not read together.
const (
	// recheckAfter is the pause while the watch is open and has shown the lock. Of the six seconds within which the
	// waiter of a free lock is served it leaves one for the requests of a busy API server.
	recheckAfter = 5 * time.Second
	// recheckUnwatched is the pause while the watch is closed, or has not shown the lock: the lock may have come and
	// gone while the watch was down. Of the two seconds within which a waiter is served then it leaves the greater part
	// for the requests.
	recheckUnwatched = 500 * time.Millisecond
	// closedSpread spreads the first reads after the watch was closed. Those of many queues take longer by their rate.
	closedSpread = 100 * time.Millisecond
	// readInterval bounds the rate of all rechecks of an engine: 200 a second. With more queues than 1000 the pause
	// becomes a second for each 200; while the watch is closed it does so with more than 100.
	readInterval = 5 * time.Millisecond
	// maxProofAge is how old the last proof of a lock's state may be at the end of a wait while the watch is closed:
	// several rechecks have failed by then.
	maxProofAge = 2 * time.Second
)

// rechecks is when a queue has read its lock and when it reads it next.
type rechecks struct {
	// at is when the lock was last written or begun to be read. Zero means that it is to be read at once.
	at time.Time
	// provenAt is when the state was last shown, written or read.
	provenAt time.Time
	// jitter, in [0, 1), places the next recheck.
	jitter float64
}

// proven records that a request has told the state of the lock now.
func (q *queues) proven(queue *queue, now time.Time) {
	queue.abandonRead()
	queue.rechecks = rechecks{at: now, provenAt: now, jitter: q.random()}
}

// shown records that the watch has shown the state of the lock. That puts no recheck off: the watch may be late.
func (q *queue) shown(now time.Time) {
	q.abandonRead()
	q.rechecks.provenAt = now
}

// isProven reports whether the state of the lock is known well enough to tell a caller.
func (q *queues) isProven(queue *queue, now time.Time) bool {
	if q.closedAt.IsZero() {
		return true
	}
	known := queue.rechecks.provenAt
	if q.closedAt.After(known) {
		known = q.closedAt // Until then the watch proved it.
	}
	age := now.Sub(known)
	return age >= 0 && age <= maxProofAge // Less than zero if the clock was set back.
}

// untilRecheck returns how long until the lock is to be read again, regardless of other queues.
func (q *queues) untilRecheck(queue *queue, now time.Time) time.Duration {
	known, period := &queue.rechecks, recheckAfter
	if !q.closedAt.IsZero() || !queue.seen.isConfirmed {
		period = recheckUnwatched
	}
	due := remaining(known.at.Add(jittered(period, known.jitter)), now, period)
	if !q.closedAt.IsZero() {
		first := q.closedAt.Add(time.Duration(known.jitter * float64(closedSpread)))
		due = max(due, remaining(first, now, closedSpread))
	}
	return max(due, remaining(queue.backoff.until, now, maxBackoff))
}

// awaitTurn returns how long a queue whose recheck is due must wait at least for its turn; zero if
// it has it. The queues that are due take turns, first come, first served. Only one whose goroutine
// does nothing but wait may be among them: the next step of any other ends with [queues.leaveTurn].
// So no queue holds the others up for longer than one read takes its share of the rate.
func (q *queues) awaitTurn(queue *queue, now time.Time) time.Duration {
	if queue.turn == nil {
		queue.turn = q.due.PushBack(queue)
	}
	if q.due.Front() != queue.turn {
		return lookAgainAfter // It is woken when it is the first.
	}
	if left := remaining(q.nextRead, now, readInterval); left > 0 {
		return left
	}
	if late := now.Sub(q.nextRead); late < 0 || late > readInterval {
		q.nextRead = now
	}
	q.nextRead = q.nextRead.Add(readInterval)
	return 0
}

// leaveTurn takes a queue out of those that wait for their turn, if it is among them.
func (q *queues) leaveTurn(left *queue) {
	if left.turn == nil {
		return
	}
	isFirst := q.due.Front() == left.turn
	q.due.Remove(left.turn)
	left.turn = nil
	if first := q.due.Front(); isFirst && first != nil {
		first.Value.(*queue).signal()
	}
}

// jittered returns the period, or up to a quarter less. Jitter is in [0, 1).
func jittered(period time.Duration, jitter float64) time.Duration {
	return period - time.Duration(jitter*float64(period/4))
}

// lastSeen is the newest state of a lock that the engine has seen.
type lastSeen struct {
	// lock is nil if the lock is free or unknown.
	lock *v1alpha1.Lock
	// version is the resourceVersion seen last; empty if none was.
	version string
	// isConfirmed says that the informer has shown the object too and will therefore report its
	// end.
	isConfirmed bool
	// ended is the last object that is known to have ended. What a slower read shows of it, or of those before it, is
	// over.
	ended endedObject
}

// endedObject is an object that never comes back.
type endedObject struct {
	// uid is empty if there is none.
	uid types.UID
	// version is a resourceVersion that it has had.
	version string
}

// update stores a state unless a newer one is known, and reports whether it did.
func (s *lastSeen) update(change lock.Change, isConfirmed bool) bool {
	lock := change.Lock
	switch {
	case lock.UID == s.ended.uid && lock.UID != "" && !change.IsGone:
		return false
	case s.version == "" || rules.IsNewer(lock.ResourceVersion, s.version):
	case s.lock != nil && s.lock.UID == lock.UID && lock.ResourceVersion == s.version:
		// The same state again, or its end if the informer missed the event.
		isConfirmed = isConfirmed || s.isConfirmed
	default:
		if change.IsGone {
			// The informer reports the end of an older object: it may have missed this one.
			s.isConfirmed = false
		}
		return false
	}
	*s = lastSeen{lock: lock, version: lock.ResourceVersion, isConfirmed: isConfirmed, ended: s.ended}
	if change.IsGone {
		s.lock = nil
	}
	return true
}

// end takes in that an object has ended, and reports whether that frees the lock. Objects of one name follow one another, so
// the resourceVersions tell which of two was first, whatever the last versions of either were. All before one that has
// ended are over as well.
func (s *lastSeen) end(of *v1alpha1.Lock) (isFreed bool) {
	switch {
	case s.lock != nil && s.lock.UID != of.UID && !rules.IsNewer(of.ResourceVersion, s.lock.ResourceVersion):
		return false // It was before the present one, and its end is found out late.
	case rules.IsNewer(s.ended.version, of.ResourceVersion):
		return false // It was before the one that has ended last, or is that one.
	}
	s.ended = endedObject{uid: of.UID, version: of.ResourceVersion}
	if s.version == "" || rules.IsNewer(of.ResourceVersion, s.version) {
		s.version = of.ResourceVersion
	}
	isFreed = s.lock != nil
	s.lock = nil
	return isFreed
}
