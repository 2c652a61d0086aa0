package engine

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// slot is how long the head waits at least unless it tries at once: meanwhile the watch shows
	// whether another was first.
	slot = 10 * time.Millisecond
	// quietGain is how much a release for which the head did not try takes from its losses. With
	// it, heads that see the same releases try for about one of twelve.
	quietGain = 1.0 / 16
	// maxLosses bounds the losses that count.
	maxLosses = 7
	// keepSpreadFor is how long the spread of a queue that has ended is kept, and keepBurstFor how long its burst is,
	// unless the object of the burst is there.
	keepSpreadFor = 10 * time.Second
	keepBurstFor  = time.Second
)

// maxSpread bounds the delays of an engine. The operator has few replicas. Programs may be many,
// and each of their tries passes admission.
func maxSpread(isAdmitted bool) time.Duration {
	if isAdmitted {
		return 500 * time.Millisecond
	}
	return 20 * time.Millisecond
}

// spread delays a head that has lost races against the heads of other engines: they all see the
// end of the lock at the same moment. The head tries at once with a chance that halves with each
// loss, and goes on in slots with the same chance. So a release costs a few writes instead of one
// for each engine, and yet those that have waited are as fast as one that has just come.
type spread struct {
	// losses counts races. A win takes one off, and each release without a try a part.
	losses float64
	// delay is how long the head waits after the lock has become free.
	delay time.Duration
	// until is when the delay ends after a delete.
	until time.Time
}

// draw draws the delay, up to most. Random is in [0, 1).
func (s *spread) draw(random float64, most time.Duration) {
	s.delay = 0
	if s.losses > 0 {
		slots := math.Floor(math.Log(1-random) / math.Log(1-math.Exp2(-s.losses)))
		s.delay = time.Duration(min(slots*float64(slot), float64(most)))
	}
}

func (s *spread) lost() { s.losses = min(s.losses+1, maxLosses) }

func (s *spread) won() { s.losses = max(s.losses-1, 0) }

func (s *spread) wasQuiet() { s.losses = max(s.losses-quietGain, 0) }

// freed records that the lock is free from now on, and draws the delay.
func (q *queues) freed(queue *queue, now time.Time) {
	queue.abandonRead()
	queue.freedAt = now
	queue.spread.draw(q.random(), q.maxSpread)
	queue.spread.until = now.Add(queue.spread.delay)
}

// remains is what the next queue for the lock takes over from one that has ended.
type remains struct {
	spread spread
	burst  handOffBurst
	// at is when the queue has ended.
	at time.Time
}

// keepRemains remembers the spread of a queue that ends: a program that waits again would otherwise be faster than those
// that have waited meanwhile. And its burst: two callers that take turns make a queue each time, and must not keep the
// waiters of other engines out for ever.
func (q *queues) keepRemains(ended *queue, now time.Time) {
	at := now
	if !ended.former.IsZero() {
		at = ended.former
	}
	left := q.atAge(ended.name, remains{spread: spread{losses: ended.spread.losses}, burst: ended.burst, at: at}, now)
	if left.isNothing() {
		return
	}
	q.ended[ended.name] = left
	if len(q.ended) < q.sweepEndedAt {
		return
	}
	for name, kept := range q.ended {
		if kept := q.atAge(name, kept, now); kept.isNothing() {
			delete(q.ended, name)
		}
	}
	q.sweepEndedAt = max(minSweep, 2*len(q.ended)) // Keeps the cost per queue constant.
}

// atAge returns what of the remains still counts.
func (q *queues) atAge(name types.NamespacedName, kept remains, now time.Time) remains {
	age := now.Sub(kept.at).Abs()
	if age > keepSpreadFor {
		kept.spread = spread{}
	}
	if (age > keepBurstFor || kept.burst.isPast(now)) && !q.isThere(name, kept.burst.uid) {
		kept.burst = handOffBurst{}
	}
	return kept
}

// isThere reports whether the object is there, as far as the engine knows: an informer of the locks in use forgets
// those that are not.
func (q *queues) isThere(name types.NamespacedName, uid types.UID) bool {
	if uid == "" {
		return false
	}
	seen, own := q.known.get(name), q.known.own(name)
	return seen != nil && seen.UID == uid || own != nil && own.UID == uid
}

func (r *remains) isNothing() bool {
	return r.spread.losses == 0 && r.burst.last.IsZero()
}

// takeRemains returns the spread and the burst for a new queue, and when the one before has ended; zero if there was none.
func (q *queues) takeRemains(name types.NamespacedName, now time.Time) (spread, handOffBurst, time.Time) {
	kept := q.atAge(name, q.ended[name], now)
	delete(q.ended, name)
	return kept.spread, kept.burst, kept.at
}
