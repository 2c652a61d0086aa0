package servertime

import "time"

// maxDrift bounds how fast the offset of two clocks may change unnoticed: 1/maxDrift,
// that is 200 parts per million. Quartz stays within 100. A clock that is being
// corrected can be faster; it leaves its interval in time, and a new one is begun.
const maxDrift = 5000

// estimate is what is known about the offset of the server's clock.
type estimate struct {
	// offset was the set of possible offsets at the local time at.
	offset interval
	at     time.Duration
	// correction lies in offset. Since that only widens with age, it stays valid.
	correction time.Duration
}

// with returns the estimate after one more observation. If that contradicts what is
// known, a clock was stepped or another server has answered, and only the newest
// counts.
func (e estimate) with(o observation) estimate {
	seen := o.offset()
	offset := e.aged(o.received).intersect(seen)
	if offset.isEmpty() {
		offset = seen
	}
	return estimate{offset: offset, at: o.received, correction: offset.correct(e.correction)}
}

// aged returns the possible offsets at the local time now, which may also be before
// the estimate: observations come in from several goroutines.
func (e estimate) aged(now time.Duration) interval {
	return e.offset.widen((now - e.at).Abs() / maxDrift)
}
