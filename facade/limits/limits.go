package limits

import (
	"cmp"
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// The default limits of all callers together.
const (
	DefaultMaxWaiting   = 20_000
	DefaultMaxRunning   = 10_000
	DefaultMaxBodyBytes = 128 << 20
	DefaultMaxLists     = 40
	DefaultMaxStreams   = 1000
)

const (
	// defaultShare is the part of a limit that one caller, or the service accounts of one
	// namespace, may use by default: one in so many.
	defaultShare = 10
	// defaultListsPerCaller lets a caller read two namespaces at a time.
	defaultListsPerCaller = 2
	// minBodyShare has room for a request, whatever the limit of all bodies is.
	minBodyShare = 2 << 20
)

// Limits bounds how many calls are served at a time, and how many may cost the API server
// something. A call is either waiting for a lock or running. A negative limit is an error.
//
// What one caller may use is its share; that of a namespace is for all its service accounts
// together. Zero means a tenth of the whole, and no share at all of a whole of less than ten.
type Limits struct {
	// Waiting calls of all callers together. Zero means [DefaultMaxWaiting].
	Waiting                               int
	WaitingPerCaller, WaitingPerNamespace int
	// Running calls of all callers together. A call that got the lock that it waited for
	// runs beyond the limits: it has something to lose. A tenth of the limit and of each share is
	// kept for [Upkeep]. Zero means [DefaultMaxRunning].
	Running                               int
	RunningPerCaller, RunningPerNamespace int
	// BodyBytes are kept for the requests of all callers together: of those that are being
	// read, of large ones until they are answered, of routed calls with their answers until they
	// end, and of lists until they are sent.
	// Zero means [DefaultMaxBodyBytes]. A share is at least 2 MiB.
	BodyBytes                                 int
	BodyBytesPerCaller, BodyBytesPerNamespace int
	// Lists are those of locks that all callers together may have under way: each is of many
	// locks, which are in memory at once. Zero means [DefaultMaxLists], and two per caller.
	Lists                             int
	ListsPerCaller, ListsPerNamespace int
	// Streams are those of the locks of whole namespaces that all callers together may have: each
	// begins with all locks, and follows every change to them. Zero means [DefaultMaxStreams].
	Streams                               int
	StreamsPerCaller, StreamsPerNamespace int
	// RatePerCaller and RatePerNamespace are how many calls a second may cost the API server
	// something, see [Permit.Spend]. Zero means any number.
	RatePerCaller, RatePerNamespace int
}

// Unshared returns the limits without shares and rates: any caller may use the whole. It is for
// callers that are not told apart.
func (l Limits) Unshared() Limits {
	return Limits{
		Waiting: l.Waiting, WaitingPerCaller: math.MaxInt, WaitingPerNamespace: math.MaxInt,
		Running: l.Running, RunningPerCaller: math.MaxInt, RunningPerNamespace: math.MaxInt,
		BodyBytes: l.BodyBytes, BodyBytesPerCaller: math.MaxInt, BodyBytesPerNamespace: math.MaxInt,
		Lists: l.Lists, ListsPerCaller: math.MaxInt, ListsPerNamespace: math.MaxInt,
		Streams: l.Streams, StreamsPerCaller: math.MaxInt, StreamsPerNamespace: math.MaxInt,
	}
}

// ShareOf is the share that one caller has of a whole by default: a tenth. Of a whole of less than ten
// there are no shares.
func ShareOf(whole int) int { return cmp.Or(whole/defaultShare, math.MaxInt) }

func (l Limits) withDefaults() Limits {
	l.Waiting = cmp.Or(l.Waiting, DefaultMaxWaiting)
	l.Running = cmp.Or(l.Running, DefaultMaxRunning)
	l.BodyBytes = cmp.Or(l.BodyBytes, DefaultMaxBodyBytes)
	l.Lists = cmp.Or(l.Lists, DefaultMaxLists)
	l.ListsPerCaller = cmp.Or(l.ListsPerCaller, defaultListsPerCaller)
	l.Streams = cmp.Or(l.Streams, DefaultMaxStreams)
	for share, whole := range map[*int]int{
		&l.WaitingPerCaller: l.Waiting, &l.WaitingPerNamespace: l.Waiting,
		&l.RunningPerCaller: l.Running, &l.RunningPerNamespace: l.Running,
		&l.ListsPerNamespace: l.Lists, &l.StreamsPerCaller: l.Streams, &l.StreamsPerNamespace: l.Streams,
	} {
		*share = cmp.Or(*share, ShareOf(whole))
	}
	for _, share := range []*int{&l.BodyBytesPerCaller, &l.BodyBytesPerNamespace} {
		if *share == 0 {
			*share = max(l.BodyBytes/defaultShare, minBodyShare)
		}
	}
	return l
}

func (l Limits) validate() error {
	if min(l.Waiting, l.WaitingPerCaller, l.WaitingPerNamespace, l.Running, l.RunningPerCaller, l.RunningPerNamespace,
		l.BodyBytes, l.BodyBytesPerCaller, l.BodyBytesPerNamespace, l.Lists, l.ListsPerCaller, l.ListsPerNamespace,
		l.Streams, l.StreamsPerCaller, l.StreamsPerNamespace, l.RatePerCaller, l.RatePerNamespace) < 0 {
		return errors.New("limits of calls must not be negative")
	}
	return nil
}

// Counts is how many calls are served.
type Counts struct{ Running, Waiting int }

// usage is what one caller, the callers of one namespace, or all callers use at the moment.
type usage struct {
	// running are all calls that run, upkeep those of them that cost [Upkeep].
	running, upkeep         int
	waiting, lists, streams int
	bytes                   int
}

func (u usage) plus(change usage) usage {
	return usage{
		u.running + change.running, u.upkeep + change.upkeep, u.waiting + change.waiting,
		u.lists + change.lists, u.streams + change.streams, u.bytes + change.bytes,
	}
}

func (u usage) negative() usage {
	return usage{-u.running, -u.upkeep, -u.waiting, -u.lists, -u.streams, -u.bytes}
}

// Limiter counts calls and bytes against [Limits]. It is safe for concurrent use.
type Limiter struct {
	limits Limits
	clock  clock.Clock

	mu    sync.Mutex
	total usage
	// callers and namespaces are those that use something.
	callers    map[Caller]usage
	namespaces map[string]usage
	rates      rates
	// waits end the waits of calls, and isDraining says that no call is to wait any more.
	waits      map[*Permit]context.CancelFunc
	isDraining bool
	// isFull tells since when the calls of all callers are at their limits.
	isFull struct{ running, waiting Level }
}

// New returns a limiter, or an error if a limit is negative. A nil clock is the real one.
func New(limits Limits, timers clock.Clock) (*Limiter, error) {
	if err := limits.validate(); err != nil {
		return nil, err
	}
	if timers == nil {
		timers = clock.RealClock{}
	}
	l := &Limiter{limits: limits.withDefaults(), clock: timers, callers: map[Caller]usage{}, namespaces: map[string]usage{}, waits: map[*Permit]context.CancelFunc{}}
	l.rates = newRates(l.limits)
	return l, nil
}

// Limits returns the limits, with the defaults in place of zeros.
func (l *Limiter) Limits() Limits { return l.limits }

// Counts returns how many calls are served at the moment.
func (l *Limiter) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Counts{l.total.running, l.total.waiting}
}

// BodyBytes returns how many bytes are kept for requests at the moment.
func (l *Limiter) BodyBytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(l.total.bytes)
}

// Full returns for how long the running and the waiting calls of all callers have been at their
// limits, see [Level.For].
func (l *Limiter) Full() (running, waiting time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	return l.isFull.running.For(now), l.isFull.waiting.For(now)
}

// Drain ends the waits of all calls, and of those that come later. Calls go on running.
func (l *Limiter) Drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isDraining = true
	for _, end := range l.waits {
		end()
	}
}

// Admit lets a call of the cost run, or returns the [*Error] that refuses it. [Permit.Release] must
// follow when the call is over.
func (l *Limiter) Admit(caller Caller, cost Cost) (*Permit, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	used := usage.ordinary
	if cost == Upkeep {
		used = usage.forUpkeep
	}
	if err := l.check(caller, l.runningShares(), used, 1); err != nil {
		return nil, err
	}
	permit := &Permit{limiter: l, caller: caller, isUpkeep: cost == Upkeep}
	l.add(caller, permit.running())
	return permit, nil
}

// add changes what is used; it needs the mutex. A caller or namespace that uses nothing is
// forgotten.
func (l *Limiter) add(caller Caller, change usage) {
	l.total = l.total.plus(change)
	l.isFull.running.Update(l.total.ordinary(l.limits.Running), l.limits.Running, l.clock)
	l.isFull.waiting.Update(l.total.waiting, l.limits.Waiting, l.clock)
	addTo(l.callers, caller, change)
	if caller.namespace != "" {
		addTo(l.namespaces, caller.namespace, change)
	}
}

func addTo[K comparable](used map[K]usage, key K, change usage) {
	changed := used[key].plus(change)
	if changed == (usage{}) {
		delete(used, key)
		return
	}
	used[key] = changed
}

// Permit counts one call.
type Permit struct {
	limiter *Limiter
	caller  Caller
	// isUpkeep says that the call costs [Upkeep].
	isUpkeep bool
	// paid is what [Limiter.Arrive] has counted and the call has yet to spend; Free if it is nothing.
	paid Cost
	// isReleased needs the mutex of the limiter.
	isReleased bool
}

// running is what the call counts as while it runs.
func (p *Permit) running() usage {
	if p.isUpkeep {
		return usage{running: 1, upkeep: 1}
	}
	return usage{running: 1}
}

// Release ends the count of a running call. Calling it again changes nothing. It is safe for
// concurrent use.
func (p *Permit) Release() {
	p.limiter.mu.Lock()
	defer p.limiter.mu.Unlock()
	if !p.isReleased {
		p.isReleased = true
		p.limiter.add(p.caller, p.running().negative())
	}
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

// Wait runs wait as a waiting call instead of a running one, with a context that also ends
// when the server stops; the error is then [ErrDraining]. It refuses with another [*Error]
// if too many calls are waiting. Afterwards the call runs again, even beyond the limits: it
// may have got its lock. A permit must not wait twice at a time.
func (p *Permit) Wait(ctx context.Context, wait func(context.Context) error) error {
	if err := p.beginWait(); err != nil {
		return err
	}
	defer p.endWait()
	if told, ok := ctx.Value(waitsKey{}).(Waits); ok {
		told.BeginWait()
		defer told.EndWait()
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	p.endAtDrain(cancel)
	err := wait(waiting)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return ErrDraining
	}
	return err
}

// endAtDrain ends the wait when the server stops. A context of the server would cost each wait some hundred bytes.
func (p *Permit) endAtDrain(end context.CancelFunc) {
	p.limiter.mu.Lock()
	defer p.limiter.mu.Unlock()
	if p.limiter.isDraining {
		end()
		return
	}
	p.limiter.waits[p] = end
}

func (p *Permit) beginWait() error {
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(p.caller, l.waitingShares(), func(u usage, _ int) int { return u.waiting }, 1); err != nil {
		return err
	}
	l.add(p.caller, p.running().negative().plus(usage{waiting: 1}))
	return nil
}

func (p *Permit) endWait() {
	p.limiter.mu.Lock()
	defer p.limiter.mu.Unlock()
	delete(p.limiter.waits, p)
	p.limiter.add(p.caller, p.running().plus(usage{waiting: -1}))
}
