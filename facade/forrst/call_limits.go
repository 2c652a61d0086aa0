package forrst

import (
	"errors"
	"net/netip"
	"sync"
	"time"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// The default limits. Where nobody is authenticated, all programs of one machine or behind
// one proxy are one caller, and 10,000 of them may wait.
const (
	DefaultMaxWaiting          = 20_000
	DefaultMaxWaitingPerCaller = 12_000
	DefaultMaxRunning          = 10_000
	DefaultMaxRunningPerCaller = 5_000
	DefaultMaxBodyBytes        = 128 << 20
)

// CallLimits bounds how many calls are served at a time. A call is either waiting for a
// lock or running. A caller is who is authenticated, and otherwise the address that it
// calls from. Zero means the default.
type CallLimits struct {
	// Waiting calls of all callers together; one more is told UNAVAILABLE.
	Waiting int
	// WaitingPerCaller of one caller; one more is told RATE_LIMITED.
	WaitingPerCaller int
	// Running calls of all callers together; one more is told UNAVAILABLE. A call that
	// got the lock that it waited for runs beyond the limits: it has something to lose.
	Running int
	// RunningPerCaller of one caller; one more is told RATE_LIMITED.
	RunningPerCaller int
	// BodyBytes are kept of the requests of all callers together: of those that are being
	// read, and of routed calls until they end; one more is told UNAVAILABLE.
	BodyBytes int
}

func (l *CallLimits) validate() error {
	if l.Waiting < 0 || l.WaitingPerCaller < 0 || l.Running < 0 || l.RunningPerCaller < 0 || l.BodyBytes < 0 {
		return errors.New("facade: limits of calls must not be negative")
	}
	return nil
}

func (l *CallLimits) setDefaults() {
	setDefault := func(limit *int, value int) {
		if *limit == 0 {
			*limit = value
		}
	}
	setDefault(&l.Waiting, DefaultMaxWaiting)
	setDefault(&l.WaitingPerCaller, DefaultMaxWaitingPerCaller)
	setDefault(&l.Running, DefaultMaxRunning)
	setDefault(&l.RunningPerCaller, DefaultMaxRunningPerCaller)
	setDefault(&l.BodyBytes, DefaultMaxBodyBytes)
}

// retryAfter is when a caller should try again that was refused for the moment.
var retryAfter = envelope.NewDuration(time.Second)

// Refusals of calls. Nothing has happened yet when they are made.
var (
	errTooManyRunning  = refusedFor(envelope.RateLimited, "The caller has too many running calls")
	errTooManyWaiting  = refusedFor(envelope.RateLimited, "The caller has too many calls that wait for locks")
	errOverloaded      = refusedFor(envelope.Unavailable, "The lock service has too many running calls")
	errQueueOverloaded = refusedFor(envelope.Unavailable, "The lock service has too many calls that wait for locks")
)

func refusedFor(code envelope.Code, message string) error { return problemFor(code, message) }

func problemFor(code envelope.Code, message string) *envelope.Error {
	problem := envelope.Error{Code: code, Message: message}.With(map[string]any{"retry_after": retryAfter})
	return &problem
}

// occupancy is how many calls are served.
type occupancy struct{ running, waiting int }

// add changes both counts at once.
func (o *occupancy) add(change occupancy) {
	o.running += change.running
	o.waiting += change.waiting
}

// caller is whose limits a call counts against: an authenticated name or a network.
type caller struct {
	name    string
	network netip.Prefix
}

// callLimiter counts calls against limits. It is safe for concurrent use.
type callLimiter struct {
	limits CallLimits

	mu    sync.Mutex
	total occupancy
	// callers are those that have calls.
	callers map[caller]occupancy
}

func newCallLimiter(limits CallLimits) *callLimiter {
	return &callLimiter{limits: limits, callers: map[caller]occupancy{}}
}

// occupancy returns how many calls are served at the moment.
func (l *callLimiter) occupancy() occupancy {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// add needs the mutex. A caller without calls is forgotten.
func (l *callLimiter) add(whose caller, change occupancy) {
	l.total.add(change)
	occupied := l.callers[whose]
	occupied.add(change)
	if occupied == (occupancy{}) {
		delete(l.callers, whose)
		return
	}
	l.callers[whose] = occupied
}

// admit lets a call run, or returns why not. Whoever is admitted leaves.
func (l *callLimiter) admit(whose caller) (admission, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.callers[whose].running >= l.limits.RunningPerCaller:
		return admission{}, errTooManyRunning
	case l.total.running >= l.limits.Running:
		return admission{}, errOverloaded
	}
	l.add(whose, occupancy{running: 1})
	return admission{l, whose}, nil
}

// admission is the place of one call among those that are served.
type admission struct {
	limiter *callLimiter
	caller  caller
}

// leave gives the place of a running call to another.
func (a admission) leave() {
	a.limiter.mu.Lock()
	defer a.limiter.mu.Unlock()
	a.limiter.add(a.caller, occupancy{running: -1})
}

// beginWait lets a running call wait, or returns why not.
func (a admission) beginWait() error {
	a.limiter.mu.Lock()
	defer a.limiter.mu.Unlock()
	switch {
	case a.limiter.callers[a.caller].waiting >= a.limiter.limits.WaitingPerCaller:
		return errTooManyWaiting
	case a.limiter.total.waiting >= a.limiter.limits.Waiting:
		return errQueueOverloaded
	}
	a.limiter.add(a.caller, occupancy{running: -1, waiting: 1})
	return nil
}

// endWait lets a call that waited run again. It is never refused: the call may have got
// its lock.
func (a admission) endWait() {
	a.limiter.mu.Lock()
	defer a.limiter.mu.Unlock()
	a.limiter.add(a.caller, occupancy{running: 1, waiting: -1})
}
