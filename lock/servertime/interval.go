package servertime

import "time"

// resolution is the resolution of the Date header.
const resolution = time.Second

// interval is the set of offsets from low to high, both included.
type interval struct{ low, high time.Duration }

// observation is one response: when its request was sent and its header received by the local
// clock, and the server's date in between. All three count from one common instant.
type observation struct{ sent, received, date time.Duration }

// offset returns the possible offsets of the server's clock from the local one.
func (o observation) offset() interval {
	return interval{low: o.date - o.received, high: o.date + resolution - o.sent}
}

func (i interval) isEmpty() bool { return i.low > i.high }

func (i interval) intersect(other interval) interval {
	return interval{low: max(i.low, other.low), high: min(i.high, other.high)}
}

// widen adds by at both ends.
func (i interval) widen(by time.Duration) interval {
	return interval{low: i.low - by, high: i.high + by}
}

// correct returns the offset of the interval to use as the correction. It changes the correction
// as little as possible: a contradiction of a millisecond must not lose it. After a step, nothing
// favours the edge of the interval, and the middle halves the error.
func (i interval) correct(from time.Duration) time.Duration {
	to := i.nearest(from)
	if (to - from).Abs() > resolution {
		return i.low + (i.high-i.low)/2
	}
	return to
}

// nearest returns the offset of the interval that is closest to the given one.
func (i interval) nearest(to time.Duration) time.Duration {
	return min(max(to, i.low), i.high)
}
