package servertime

import "time"

// maxDrift bounds how fast the offset of two clocks may change unnoticed: 1/maxDrift, that is 200
// parts per million. Quartz stays within 100. A clock that is being corrected can be faster; it
// leaves its interval in time, and a new one begins.
const maxDrift = 5000

// estimate is the known offset of the server's clock.
type estimate struct {
	// offset was the set of possible offsets at the local time at.
	offset interval
	at     time.Duration
	// correction lies in offset, which only widens with age; the correction stays valid.
	correction time.Duration
}

// with returns the estimate after one more observation. If that contradicts the estimate, a clock
// was stepped or another server answered, and only the new observation counts.
func (e estimate) with(o observation) estimate {
	seen := o.offset()
	offset := e.aged(o.received).intersect(seen)
	if offset.isEmpty() {
		offset = seen
	}
	return estimate{offset: offset, at: o.received, correction: offset.correct(e.correction)}
}

// aged returns the possible offsets at the local time now, which may be before the estimate:
// several goroutines observe.
func (e estimate) aged(now time.Duration) interval {
	return e.offset.widen((now - e.at).Abs() / maxDrift)
}
