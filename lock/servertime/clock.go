package servertime

import (
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

const (
	// FreshFor is how long after an answer a clock counts as right where no later answer would show that its machine was
	// paused.
	FreshFor = 20 * time.Second
	// maxStep is how much the wall clock and the monotonic clock may disagree about the time that has passed. Slewing causes
	// 5 ms in 20 s.
	maxStep = 50 * time.Millisecond
)

// timers is an unexported name for the embedded clock.
type timers = clock.WithTicker

// Clock tells the time of the API server whose responses it observes. It implements
// [clock.WithTicker]; timers and tickers are those of the local clock. Safe for
// concurrent use.
//
// The time may step, by up to a second while responses narrow the offset down, and
// by any amount at the first response and after the local clock was stepped or the
// machine suspended. Measure durations and schedule work with [Clock.Local].
//
// Before the first response the time is the local one.
type Clock struct {
	timers
	// base is the reading that all others are relative to. If both have a monotonic part, a step
	// of the wall clock does not affect the difference.
	base time.Time
	// start is base without its monotonic part.
	start time.Time
	// state is nil until the first response.
	state atomic.Pointer[state]
}

type state struct {
	estimate
	// heard is when the latest answered request was sent: the machine may have been suspended before the answer was received.
	heard time.Time
}

// New returns a clock that corrects the local clock.
func New(local clock.WithTicker) *Clock {
	base := local.Now()
	return &Clock{timers: local, base: base, start: base.Round(0)}
}

// Local returns the local clock, uncorrected.
func (c *Clock) Local() clock.WithTicker { return c.timers }

// Now returns the time of the API server as far as it is known, without a monotonic part.
func (c *Clock) Now() time.Time { return c.Read().Time }

// Reading is a time that a clock told, with what it takes to judge it later.
type Reading struct {
	// Time is that of the clock's Now.
	time.Time
	// correction was in force.
	correction time.Duration
}

// Read is [Clock.Now] with what [Clock.MaxError] needs.
func (c *Clock) Read() Reading {
	sinceBase := c.timers.Now().Sub(c.base)
	state := c.state.Load()
	if state == nil {
		return Reading{Time: c.start.Add(sinceBase)}
	}
	return Reading{Time: c.start.Add(sinceBase + state.correction), correction: state.correction}
}

// MaxError returns by how much a reading of its own may have been wrong, if answers since then have shown that it was; zero if
// they agree with it.
func (c *Clock) MaxError(reading Reading) time.Duration {
	state := c.state.Load()
	if state == nil || state.correction == reading.correction {
		return 0
	}
	return max(state.offset.high-reading.correction, reading.correction-state.offset.low)
}

// Since returns the time from t, a time of this clock, to now.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Observe updates the clock with a response. Sent is a reading of the local clock, see
// [Clock.Local], from before the request was sent; received is one from after the header of its
// response was received. Date is the time in that header, in whole seconds. A slow response adds
// little information and does no harm.
func (c *Clock) Observe(sent, received, date time.Time) {
	if received.Before(sent) {
		return // The clock was stepped in between.
	}
	seen := observation{sent: sent.Sub(c.base), received: received.Sub(c.base), date: date.Sub(c.start)}
	for {
		known := c.state.Load()
		if c.state.CompareAndSwap(known, known.with(seen, sent, received)) {
			return
		}
	}
}

// HasHeard reports whether a request was answered that was sent within the time, and the machine was not suspended since, as
// far as its clocks show.
func (c *Clock) HasHeard(within time.Duration) bool {
	state, now := c.state.Load(), c.timers.Now()
	if state == nil || Jump(state.heard, now) != 0 {
		return false
	}
	elapsed := now.Sub(state.heard)
	return 0 <= elapsed && elapsed <= within
}

// MaxAhead returns how far [Clock.Now] can be ahead of the API server's clock: up to a second
// after the first response, milliseconds after many. Before a take-over a caller waits this long
// beyond the expiry.
func (c *Clock) MaxAhead() time.Duration {
	state := c.state.Load()
	if state == nil {
		return 0
	}
	return max(0, state.correction-state.aged(c.timers.Now().Sub(c.base)).low)
}

// MaxAhead returns how far the clock can be ahead of the API server's; zero if the clock cannot
// tell.
func MaxAhead(c clock.PassiveClock) time.Duration {
	checked, ok := c.(interface{ MaxAhead() time.Duration })
	if !ok {
		return 0
	}
	return checked.MaxAhead()
}

// Read returns a reading of any clock.
func Read(c clock.PassiveClock) Reading {
	if checked, ok := c.(interface{ Read() Reading }); ok {
		return checked.Read()
	}
	return Reading{Time: c.Now()}
}

// MaxError is [Clock.MaxError] of any clock; zero if the clock cannot tell.
func MaxError(c clock.PassiveClock, reading Reading) time.Duration {
	checked, ok := c.(interface{ MaxError(Reading) time.Duration })
	if !ok {
		return 0
	}
	return checked.MaxError(reading)
}

// Timers returns the clock for durations: the local clock of a [Clock], and c itself otherwise. A
// correction is not time that has passed.
func Timers(c clock.WithTicker) clock.WithTicker {
	if corrected, ok := c.(*Clock); ok {
		return corrected.Local()
	}
	return c
}

// HasHeard is [Clock.HasHeard] of any clock; true if the clock cannot tell.
func HasHeard(c clock.PassiveClock, within time.Duration) bool {
	checked, ok := c.(interface{ HasHeard(time.Duration) bool })
	return !ok || checked.HasHeard(within)
}

// Jump returns how far the wall clock went beyond the monotonic one between two readings of a local
// clock, of which one may be from an addition. It is more than zero if the machine was suspended,
// during which the monotonic clock stands still and after which the wall clock is set, or if the
// wall clock was stepped forward; less than zero if it was stepped back; and zero if they differ by
// no more than slewing causes, or if one reading has no monotonic part.
func Jump(from, to time.Time) time.Duration {
	jump := to.Round(0).Sub(from.Round(0)) - to.Sub(from)
	if jump.Abs() <= maxStep {
		return 0
	}
	return jump
}

// wallResolution is how much a wall clock may be behind after its machine was suspended: meanwhile
// one goes on that has whole seconds.
const wallResolution = time.Second

// Left returns how much time is left until the deadline for certain; zero or less if none is. Now is
// a reading of a local clock, and deadline is one or a sum with one. The monotonic clock, by which
// they compare, stands still while the machine is suspended; the service does not. If the wall clock
// has jumped ahead since the deadline was set, that time has passed, too.
func Left(deadline, now time.Time) time.Duration {
	if jump := Jump(deadline, now); jump > 0 {
		return deadline.Sub(now) - jump - wallResolution
	}
	return deadline.Sub(now)
}

// with returns the state after one more observation; s may be nil.
func (s *state) with(seen observation, sent, received time.Time) *state {
	if s == nil {
		s = &state{estimate: estimate{offset: seen.offset(), at: seen.received}}
	}
	// If the receipt of a slow answer seems to precede the latest request, the clock was stepped back.
	if sent.Before(s.heard) && !s.heard.After(received) {
		sent = s.heard
	}
	return &state{estimate: s.estimate.with(seen), heard: sent}
}
