package limits

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"forrst.dev/lock-operator/lock/bodies"
)

// The default limits. Callers that are not authenticated count by their network, so all
// programs of one machine or behind one proxy are one caller, and 10,000 of them may wait.
const (
	DefaultMaxWaiting          = 20_000
	DefaultMaxWaitingPerCaller = 12_000
	DefaultMaxRunning          = 10_000
	DefaultMaxRunningPerCaller = 5_000
	DefaultMaxBodyBytes        = 128 << 20
)

// Limits bounds how many calls are served at a time. A call is either waiting for a lock or
// running. Zero means the default; a negative limit is an error.
type Limits struct {
	// Waiting calls of all callers together.
	Waiting int
	// WaitingPerCaller is how many of them may be of one caller.
	WaitingPerCaller int
	// Running calls of all callers together. A call that got the lock that it waited for
	// runs beyond the limits: it has something to lose.
	Running int
	// RunningPerCaller is how many of them may be of one caller.
	RunningPerCaller int
	// BodyBytes are kept of the requests of all callers together: of those that are being
	// read, and of routed calls until they end.
	BodyBytes int
}

// Counts is how many calls are served.
type Counts struct{ Running, Waiting int }

// Limiter counts calls and bytes against [Limits]. It is safe for concurrent use.
type Limiter struct {
	limits Limits
	bodies *bodies.Budget
	// draining ends when calls must stop waiting.
	draining context.Context // It belongs to no call.
	drain    context.CancelFunc

	mu    sync.Mutex
	total Counts
	// callers are those that have calls.
	callers map[Caller]Counts
}

// New returns a limiter, or an error if a limit is negative.
func New(limits Limits) (*Limiter, error) {
	if min(limits.Waiting, limits.WaitingPerCaller, limits.Running, limits.RunningPerCaller, limits.BodyBytes) < 0 {
		return nil, errors.New("limits of calls must not be negative")
	}
	l := &Limiter{
		limits: Limits{
			Waiting:          cmp.Or(limits.Waiting, DefaultMaxWaiting),
			WaitingPerCaller: cmp.Or(limits.WaitingPerCaller, DefaultMaxWaitingPerCaller),
			Running:          cmp.Or(limits.Running, DefaultMaxRunning),
			RunningPerCaller: cmp.Or(limits.RunningPerCaller, DefaultMaxRunningPerCaller),
		},
		bodies:  bodies.NewBudget(int64(cmp.Or(limits.BodyBytes, DefaultMaxBodyBytes)), ErrBodies),
		callers: map[Caller]Counts{},
	}
	l.draining, l.drain = context.WithCancel(context.Background())
	return l, nil
}

// Counts returns how many calls are served at the moment.
func (l *Limiter) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// Drain ends the waits of all calls, and of those that come later. Calls go on running.
func (l *Limiter) Drain() { l.drain() }

// Admit lets a call run, or returns the [*Error] that refuses it. [Permit.Release] must
// follow when the call is over.
func (l *Limiter) Admit(caller Caller) (*Permit, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.callers[caller].Running >= l.limits.RunningPerCaller:
		return nil, ErrCallerRunning
	case l.total.Running >= l.limits.Running:
		return nil, ErrRunning
	}
	l.add(caller, 1, 0)
	return &Permit{limiter: l, caller: caller}, nil
}

// add changes the counts; it needs the mutex. A caller without calls is forgotten.
func (l *Limiter) add(caller Caller, running, waiting int) {
	l.total = Counts{l.total.Running + running, l.total.Waiting + waiting}
	counts := l.callers[caller]
	counts = Counts{counts.Running + running, counts.Waiting + waiting}
	if counts == (Counts{}) {
		delete(l.callers, caller)
		return
	}
	l.callers[caller] = counts
}

// Permit counts one call.
type Permit struct {
	limiter *Limiter
	caller  Caller
	// isReleased needs the mutex of the limiter.
	isReleased bool
}

// Release ends the count of a running call. Calling it again changes nothing. It is safe for
// concurrent use.
func (p *Permit) Release() {
	p.limiter.mu.Lock()
	defer p.limiter.mu.Unlock()
	if !p.isReleased {
		p.isReleased = true
		p.limiter.add(p.caller, -1, 0)
	}
}

// Wait runs wait as a waiting call instead of a running one, with a context that also ends
// when the server stops; the error is then [ErrDraining]. It refuses with another [*Error]
// if too many calls are waiting. Afterwards the call runs again, even beyond the limits: it
// may have got its lock.
func (p *Permit) Wait(ctx context.Context, wait func(context.Context) error) error {
	if err := p.beginWait(); err != nil {
		return err
	}
	defer p.endWait()
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(p.limiter.draining, cancel) //nolint:contextcheck // It ends with the server, not with the call.
	defer stop()
	err := wait(waiting)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return ErrDraining
	}
	return err
}

func (p *Permit) beginWait() error {
	p.limiter.mu.Lock()
	defer p.limiter.mu.Unlock()
	switch {
	case p.limiter.callers[p.caller].Waiting >= p.limiter.limits.WaitingPerCaller:
		return ErrCallerWaiting
	case p.limiter.total.Waiting >= p.limiter.limits.Waiting:
		return ErrWaiting
	}
	p.limiter.add(p.caller, -1, 1)
	return nil
}

func (p *Permit) endWait() {
	p.limiter.mu.Lock()
	defer p.limiter.mu.Unlock()
	p.limiter.add(p.caller, 1, -1)
}
