package digest

import "time"

const (
	// tolerated is how many digests may differ, one after another, before the informer lists anew.
	// After the first, all replicas say what they were shown; the one that differs from a second has
	// lost something, unless there are only two of them.
	tolerated = 1
	// minPause and maxPause bound the pause between two lists, which doubles: what a list has not
	// mended may last. forgiven is after what time it is short again.
	minPause, maxPause = 5 * time.Second, time.Minute
	forgiven           = 5 * time.Minute
	// lasting is within what time the next digest of a dispute comes. What differs later has another
	// cause.
	lasting = 3 * time.Second
)

// Dispute is what follows from the verdicts on the digests of other replicas. Its zero value is
// peace.
type Dispute struct {
	// differing counts the digests that differed since one agreed, or since the last list.
	differing int
	// latest is when a digest last differed.
	latest time.Time
	// listed is when a list was last asked for, and pause how long until the next may be.
	listed time.Time
	pause  time.Duration
}

// Judge takes in a verdict. IsFirst says that a dispute begins, and isOver that all agree again. If
// mustList, the informer is to list anew, which ends the dispute, too.
func (d *Dispute) Judge(verdict Verdict, now time.Time) (isFirst, isOver, mustList bool) {
	switch verdict {
	case Unknown, Lags:
	case Agrees:
		isOver = d.differing > 0
		d.differing = 0
	case Differs:
		if now.Sub(d.latest) > lasting {
			d.differing = 0
		}
		d.differing++
		d.latest = now
		isFirst = d.differing == 1
		since := now.Sub(d.listed)
		mustList = d.differing > tolerated && since >= d.pause
		if mustList {
			if since >= forgiven {
				d.pause = 0
			}
			*d = Dispute{listed: now, pause: min(max(2*d.pause, minPause), maxPause)}
		}
	}
	return isFirst, isOver, mustList
}
