package engine

import (
	"math"
	"time"
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
)

// maxSpread bounds the delays of an engine. The operator has few replicas. Programs may be many,
// and each of their tries passes admission.
func maxSpread(isAdmitted bool) time.Duration {
	if isAdmitted {
		return 500 * time.Millisecond
	}
	return 20 * time.Millisecond
}

// spread delays the heads of an engine that have lost races against other engines: the heads of all see the
// end of a lock at the same moment. A queue that has lost none has no delay, and tells nothing of the others.
// The losses are the engine's, since callers that take turns make a queue for each turn. A head tries at once with a chance that halves with each
// loss, and goes on in slots with the same chance. So a release costs a few writes instead of one
// for each engine, and yet those that have waited are as fast as one that has just come.
type spread struct {
	// losses counts the races of the engine. A win takes one off, and each release without a try a part.
	losses float64
	// most bounds the delays.
	most time.Duration
}

// draw returns how long a head waits after its lock has become free. Random is in [0, 1).
func (s *spread) draw(random float64) time.Duration {
	if s.losses == 0 {
		return 0
	}
	slots := math.Floor(math.Log(1-random) / math.Log(1-math.Exp2(-s.losses)))
	return time.Duration(min(slots*float64(slot), float64(s.most)))
}

func (s *spread) lost() { s.losses = min(s.losses+1, maxLosses) }

func (s *spread) won() { s.losses = max(s.losses-1, 0) }

func (s *spread) wasQuiet() { s.losses = max(s.losses-quietGain, 0) }

// freed records that the lock is free from now on, and draws the delay of the head.
func (q *queues) freed(queue *queue, now time.Time) {
	queue.abandonRead()
	queue.freedAt, queue.delay = now, q.drawDelay(queue)
}

// drawDelay returns how long the head waits after its lock has become free.
func (q *queues) drawDelay(queue *queue) time.Duration {
	if !queue.hasLost {
		return 0
	}
	return q.spread.draw(q.random())
}
