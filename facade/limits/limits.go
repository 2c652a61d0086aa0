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
	DefaultMaxInFlight  = 30_000
	DefaultMaxBodyBytes = 128 << 20
	DefaultShares       = 20
	// MaxLists are lists of locks that are under way: each is of many locks, which are in memory at once.
	MaxLists = 40
	// MaxStreams are streams of the locks of whole namespaces: each begins with all locks, and follows every change to them.
	MaxStreams = 1000
)

// Limits bounds what callers may use.
type Limits struct {
	// InFlight is how many calls of all callers may be in flight, whether they run or wait for a lock. A tenth of it,
	// and of each share, is kept for [Upkeep]. Zero means [DefaultMaxInFlight].
	InFlight int
	// BodyBytes are kept for the requests of all callers together: of those that are being
	// read, of large ones until they are answered, of routed calls with their answers until they
	// end, and of lists until they are sent. A share is at least 2 MiB. Zero means [DefaultMaxBodyBytes].
	BodyBytes int
	// Shares is into how many each limit is divided: a caller may use one, and the service accounts of one namespace two
	// together. Zero means [DefaultShares]. One means that any caller may use the whole, as of a limit with less than so many.
	Shares int
	// RatePerCaller is how many calls a second of one caller may cost the API server something, see [Limiter.Arrive]; of the
	// service accounts of one namespace, twice as many. Zero means any number.
	RatePerCaller int
}

// Limiter counts calls and bytes against [Limits]. It is safe for concurrent use.
type Limiter struct {
	clock                            clock.Clock
	inFlight, bodies, lists, streams *pool
	ratePerCaller                    int

	mu sync.Mutex
	// buckets has the rates of callers and namespaces.
	buckets *lru.Cache
	// waits has the functions that end the waits of calls, by their permits.
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
	return &Limiter{
		clock: timers, ratePerCaller: limits.RatePerCaller, buckets: lru.New(maxBuckets),
		inFlight: poolOf(cmp.Or(limits.InFlight, DefaultMaxInFlight), 1, inFlight),
		bodies:   poolOf(cmp.Or(limits.BodyBytes, DefaultMaxBodyBytes), minBodyShare, refusalsOf("body_bytes", "bytes of requests and answers")),
		lists:    poolOf(MaxLists, 1, refusalsOf("lists", "lists under way")),
		streams:  poolOf(MaxStreams, 1, refusalsOf("streams", "streams of namespaces")),
	}, nil
}

// Admit counts a call of the cost as one in flight, or returns the [*Error] that refuses it. [Permit.Release] must
// follow when the call is over.
func (l *Limiter) Admit(caller Caller, cost Cost) (*Permit, error) {
	if err := l.inFlight.take(caller, 1, cost); err != nil {
		return nil, err
	}
	return &Permit{limiter: l, caller: caller}, nil
}

// Permit counts one call.
type Permit struct {
	limiter *Limiter
	caller  Caller
	release sync.Once
	// paid is the [Cost] that [Limiter.Arrive] has counted and the call has yet to spend; Free if there is none.
	paid atomic.Int32
}

// Release ends the count of the call. Calling it again changes nothing. It is safe for concurrent use.
func (p *Permit) Release() {
	p.release.Do(func() { p.limiter.inFlight.give(p.caller, 1) })
}

// BeginList counts a list of locks until end is called, once, or returns the [*Error] that refuses it: what reads
// the locks serves lists in the order in which they came, so many of one caller would delay those of all others.
func (p *Permit) BeginList() (end func(), err error) { return p.begin(p.limiter.lists) }

// BeginStream counts a stream of the locks of a whole namespace until end is called, once, or returns the
// [*Error] that refuses it.
func (p *Permit) BeginStream() (end func(), err error) { return p.begin(p.limiter.streams) }

func (p *Permit) begin(of *pool) (end func(), err error) {
	if err := of.take(p.caller, 1, Upkeep); err != nil {
		return nil, err
	}
	return func() { of.give(p.caller, 1) }, nil
}

// Waits is told when the call of a request begins and ends to wait. It is safe for concurrent use.
type Waits interface {
	BeginWait()
	EndWait()
}

type waitsKey struct{}

// WithWaits returns a context with which [Permit.Wait] tells of waits.
func WithWaits(ctx context.Context, told Waits) context.Context {
	return context.WithValue(ctx, waitsKey{}, told)
}

// Wait runs wait with a context that also ends when the server stops; the error is then [ErrDraining]. A permit must not
// wait twice at a time.
func (p *Permit) Wait(ctx context.Context, wait func(context.Context) error) error {
	if told, ok := ctx.Value(waitsKey{}).(Waits); ok {
		told.BeginWait()
		defer told.EndWait()
	}
	l := p.limiter
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	waiting, end := context.WithCancel(ctx)
	defer end()
	l.waits.Store(p, end)
	defer l.waits.Delete(p)
	if l.isDraining.Load() {
		end()
	}
	err := wait(waiting)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return ErrDraining
	}
	return err
}

// Drain ends the waits of all calls, and of those that come later. Calls go on running.
func (l *Limiter) Drain() {
	l.isDraining.Store(true)
	l.waits.Range(func(_, end any) bool {
		end.(context.CancelFunc)() //nolint:forcetypeassert // There is nothing else.
		return true
	})
}

// Counts is how many calls are in flight.
type Counts struct{ Running, Waiting int }

// Counts returns how many calls are in flight at the moment.
func (l *Limiter) Counts() Counts {
	waiting := int(l.waiting.Load())
	return Counts{max(0, l.inFlight.total()-waiting), waiting}
}

// BodyBytes returns how many bytes are kept for requests at the moment.
func (l *Limiter) BodyBytes() int64 { return int64(l.bodies.total()) }

// Saturated returns for how long the calls of all callers have been at their limit, see [Level.For].
func (l *Limiter) Saturated() time.Duration {
	l.inFlight.mu.Lock()
	defer l.inFlight.mu.Unlock()
	return l.inFlight.full.For(l.clock.Now())
}

// Whole is a limit of all callers together. Its name is that of [Error.Limit].
type Whole struct {
	Name string
	of   func(*Limiter) *pool
}

// Wholes are the limits of all callers together.
var Wholes = []Whole{
	{"in_flight", func(l *Limiter) *pool { return l.inFlight }},
	{"body_bytes", func(l *Limiter) *pool { return l.bodies }},
	{"lists", func(l *Limiter) *pool { return l.lists }},
	{"streams", func(l *Limiter) *pool { return l.streams }},
}

// Usage returns how much of the limit is used, from 0 to 1.
func (l *Limiter) Usage(of Whole) float64 {
	limit := of.of(l)
	whole := limit.whole
	if limit == l.inFlight {
		whole = forCost(whole, Work) // Other calls are refused from then on.
	}
	return min(1, float64(limit.total())/float64(whole))
}
