package limits

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// Limits of all callers together, by default or always, and into how many shares they are divided.
const (
	DefaultMaxInFlight  = 20_000
	DefaultMaxBodyBytes = 128 << 20
	DefaultShares       = 20
	// MaxLists are lists of locks that are under way: each is of many locks, which are in memory at once.
	MaxLists = 40
	// MaxStreams are streams of the locks of whole namespaces: each begins with all locks, and follows every change to them.
	MaxStreams = 1000
)

// Limits bounds what callers may use.
type Limits struct {
	// InFlight is how many requests of all callers may be in flight, from the authentication of the caller to the end of the
	// answer. A tenth of it, and of each share, is kept for [Upkeep]. Zero means [DefaultMaxInFlight].
	InFlight int
	// BodyBytes are kept for the requests of all callers together: of those that are being
	// read, of large ones until they are answered, of routed calls with their answers until they
	// end, and of lists until they are sent. A share is at least 2 MiB. Zero means [DefaultMaxBodyBytes].
	BodyBytes int
	// Shares is into how many each limit is divided: a caller may use one, and the service accounts of one namespace two
	// together. Zero means [DefaultShares]. One means that any caller may use the whole, as of a limit with less than so many.
	Shares int
	// RatePerCaller is how many calls and reviews a second of one caller may cost the API server something, see [Permit.Begin];
	// of the service accounts of one namespace, twice as many. Zero means any number.
	RatePerCaller int
}

// Limiter counts requests and bytes against [Limits]. It is safe for concurrent use.
type Limiter struct {
	clock clock.Clock
	// arriving are the requests that have not begun, inFlight those that have, and work those of them that are no [Upkeep].
	arriving, inFlight, work, bodies, lists, streams *pool
	ratePerCaller                                    int

	mu sync.Mutex
	// buckets has the rates of callers and namespaces.
	buckets *lru.Cache
	// waits has the functions that end the waits of calls, by their contexts.
	waits      sync.Map
	waiting    atomic.Int64
	isDraining atomic.Bool
}

// New returns a limiter, or an error if a limit is negative. A nil clock is the real one.
func New(limits Limits, timers clock.Clock) (*Limiter, error) {
	if min(limits.InFlight, limits.BodyBytes, limits.Shares, limits.RatePerCaller) < 0 {
		return nil, errors.New("limits of calls must not be negative")
	}
	if timers == nil {
		timers = clock.RealClock{}
	}
	poolOf := func(whole, minShare int, refusals refusals) *pool {
		return newPool(whole, cmp.Or(limits.Shares, DefaultShares), minShare, refusals, timers)
	}
	requests := func() *pool { return poolOf(cmp.Or(limits.InFlight, DefaultMaxInFlight), 1, inFlight) }
	begun := requests()
	return &Limiter{
		clock: timers, ratePerCaller: limits.RatePerCaller, buckets: lru.New(maxBuckets),
		arriving: requests(), inFlight: begun, work: begun.butTenth(),
		bodies:  poolOf(cmp.Or(limits.BodyBytes, DefaultMaxBodyBytes), minBodyShare, refusalsOf("body_bytes", "bytes of requests and answers")),
		lists:   poolOf(MaxLists, 1, refusalsOf("lists", "lists under way")),
		streams: poolOf(MaxStreams, 1, refusalsOf("streams", "streams of namespaces")),
	}, nil
}

// Drain ends the waits of all calls, and of those that come later. Calls go on running.
func (l *Limiter) Drain() {
	l.isDraining.Store(true)
	l.waits.Range(func(_, end any) bool {
		end.(context.CancelFunc)() //nolint:forcetypeassert // There is nothing else.
		return true
	})
}

// Counts is how many requests are in flight.
type Counts struct{ Running, Waiting int }

// Counts returns how many requests are in flight at the moment.
func (l *Limiter) Counts() Counts {
	waiting := int(l.waiting.Load())
	return Counts{max(0, l.arriving.total()+l.inFlight.total()-waiting), waiting}
}

// BodyBytes returns how many bytes are kept for requests at the moment.
func (l *Limiter) BodyBytes() int64 { return int64(l.bodies.total()) }

// Saturated returns for how long the requests of all callers have been at their limit, see [Level.For].
func (l *Limiter) Saturated() time.Duration {
	return max(l.arriving.saturated(), l.inFlight.saturated(), l.work.saturated())
}

// Whole is a limit of all callers together. Its name is that of [Error.Limit].
type Whole struct {
	Name string
	of   func(*Limiter) []*pool
}

// Wholes are the limits of all callers together.
var Wholes = []Whole{
	{"in_flight", func(l *Limiter) []*pool { return []*pool{l.arriving, l.inFlight, l.work} }},
	{"body_bytes", func(l *Limiter) []*pool { return []*pool{l.bodies} }},
	{"lists", func(l *Limiter) []*pool { return []*pool{l.lists} }},
	{"streams", func(l *Limiter) []*pool { return []*pool{l.streams} }},
}

// Usage returns how much of the limit is used, from 0 to 1. At 1, requests are refused.
func (l *Limiter) Usage(of Whole) (usage float64) {
	for _, limit := range of.of(l) {
		usage = max(usage, float64(limit.total())/float64(limit.whole))
	}
	return min(1, usage)
}
