package limits

// upkeepReserve is the part of a limit of running calls that is kept for [Upkeep]: one in so many.
const upkeepReserve = 10

// shares are a limit of all callers together and what one caller, and the accounts of one namespace,
// may use of it, with the errors that tell which of them is used up.
type shares struct {
	ofCaller, ofNamespace, whole      int
	errCaller, errNamespace, errWhole *Error
}

// check returns the error of the share that has no room for so many more. Used tells what counts against
// a share of the size. It needs the mutex.
func (l *Limiter) check(who Caller, most shares, used func(u usage, share int) int, more int) error {
	switch {
	case used(l.callers[who], most.ofCaller)+more > most.ofCaller:
		return most.errCaller
	case used(l.namespaces[who.namespace], most.ofNamespace)+more > most.ofNamespace:
		return most.errNamespace
	case used(l.total, most.whole)+more > most.whole:
		return most.errWhole
	}
	return nil
}

// ordinary is what counts of a share of running calls for all but renewals and releases, for which a part
// is kept: a caller whose other calls use up theirs must not lose the locks that it holds.
func (u usage) ordinary(share int) int { return u.running + max(0, share/upkeepReserve-u.upkeep) }

// forUpkeep is what counts for renewals and releases. Calls that have waited run beyond the limits, and
// must not use up the part that is kept.
func (u usage) forUpkeep(share int) int {
	if u.upkeep < share/upkeepReserve {
		return 0
	}
	return u.running
}

func (l *Limiter) runningShares() shares {
	return shares{
		l.limits.RunningPerCaller, l.limits.RunningPerNamespace, l.limits.Running,
		ErrCallerRunning, ErrNamespaceRunning, ErrRunning,
	}
}

func (l *Limiter) waitingShares() shares {
	return shares{
		l.limits.WaitingPerCaller, l.limits.WaitingPerNamespace, l.limits.Waiting,
		ErrCallerWaiting, ErrNamespaceWaiting, ErrWaiting,
	}
}

// BeginList counts a list of locks until end is called, or returns the [*Error] that refuses it: what reads
// the locks serves lists in the order in which they came, so many of one caller would delay those of all
// others. A nil permit allows all.
func (p *Permit) BeginList() (end func(), err error) {
	if p == nil {
		return func() {}, nil
	}
	limits := &p.limiter.limits
	return p.begin(usage{lists: 1}, func(u usage, _ int) int { return u.lists }, shares{
		limits.ListsPerCaller, limits.ListsPerNamespace, limits.Lists,
		ErrCallerLists, ErrNamespaceLists, ErrLists,
	})
}

// BeginStream counts a stream of the locks of a whole namespace until end is called, or returns the
// [*Error] that refuses it. A nil permit allows all.
func (p *Permit) BeginStream() (end func(), err error) {
	if p == nil {
		return func() {}, nil
	}
	limits := &p.limiter.limits
	return p.begin(usage{streams: 1}, func(u usage, _ int) int { return u.streams }, shares{
		limits.StreamsPerCaller, limits.StreamsPerNamespace, limits.Streams,
		ErrCallerStreams, ErrNamespaceStreams, ErrStreams,
	})
}

// begin counts something that the call does besides running, until end is called, once.
func (p *Permit) begin(one usage, used func(u usage, share int) int, most shares) (end func(), err error) {
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(p.caller, most, used, 1); err != nil {
		return nil, err
	}
	l.add(p.caller, one)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.add(p.caller, one.negative())
	}, nil
}

// Whole is a limit of all callers together.
type Whole struct {
	// Name is that of [Error.Limit].
	Name  string
	most  func(Limits) int
	count func(usage) int
}

// Wholes are the limits of all callers together, but for rates, which have none.
var Wholes = []Whole{
	{"running", func(l Limits) int { return l.Running }, func(u usage) int { return u.running }},
	{"waiting", func(l Limits) int { return l.Waiting }, func(u usage) int { return u.waiting }},
	{"body_bytes", func(l Limits) int { return l.BodyBytes }, func(u usage) int { return u.bytes }},
	{"lists", func(l Limits) int { return l.Lists }, func(u usage) int { return u.lists }},
	{"streams", func(l Limits) int { return l.Streams }, func(u usage) int { return u.streams }},
}

// Usage returns how much of the limit is used, from 0 to 1. Running calls may exceed theirs.
func (l *Limiter) Usage(of Whole) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return float64(of.count(l.total)) / float64(of.most(l.limits))
}
