package line

import "time"

// offset relates the clock of another replica to this one's, by the message of the last minute that was quickest
// on its way. So the callers of one replica keep their order, and those of several differ by the time of a
// message at most. Neither clock is ever corrected, but one may run faster.
type offset struct {
	// zero is when the other clock showed zero, or later, by the messages of this period and of the former one.
	zero time.Time
	// latest is the same by those of this period alone, which began at since.
	latest, since time.Time
}

// offsetPeriod is half of the time for which a message counts.
const offsetPeriod = 30 * time.Second

// note takes in a message that was sent at a time of the other clock and has arrived now.
func (o *offset) note(now time.Time, sent time.Duration) {
	zero := now.Add(-sent)
	switch {
	case o.zero.IsZero():
		*o = offset{zero: zero, latest: zero, since: now}
	case now.Sub(o.since) >= offsetPeriod:
		*o = offset{zero: o.latest, latest: zero, since: now}
	case zero.Before(o.latest):
		o.latest = zero
	}
	if zero.Before(o.zero) {
		o.zero = zero
	}
}

// at returns when the other clock showed the time.
func (o *offset) at(shown time.Duration) time.Time { return o.zero.Add(shown) }
