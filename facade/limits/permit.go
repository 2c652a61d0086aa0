package limits

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Permit counts one request against all limits of its caller. Only the goroutine of the request uses it, but for
// [Permit.Spend] and [Permit.Release], which are safe for concurrent use.
type Permit struct {
	limiter *Limiter
	caller  Caller
	// holds is how often it has to be released besides the first time.
	holds atomic.Int32
	// hasBegun says that it is in flight, and isWork that it counts among those that are no [Upkeep].
	hasBegun, isWork bool
	cost             Cost
	// wait is how long the request may wait for its lock, and waited how much of that is over.
	wait, waited time.Duration
}

// Admit counts a request of the caller as one that arrives, or returns the [*Error] that refuses it. [Permit.Begin] must follow
// when it is known what the request asks for, and [Permit.Release] when its answer is sent. There may be as many that arrive as
// there may be in flight, and they take no place of these: a renewal must not be refused for bodies that are sent slowly.
func (l *Limiter) Admit(caller Caller) (*Permit, error) {
	if err := l.arriving.take(caller, 1); err != nil {
		return nil, err
	}
	return &Permit{limiter: l, caller: caller}, nil
}

// Begin counts the request, which has the cost, as one in flight: if it is no [Upkeep], it must leave a tenth of these to those
// that are. Then it pays, before anything is reviewed or done for it: a request that fails later has cost as
// much. One that may wait for a lock waits for its turn as a part of that, see [Permit.Waited]. The error is a [*Error] or that of
// ctx, and [ErrDraining] for one that waits when the server stops.
//
// A request that comes before the time at which a refusal has told its caller to try again waits for its turn behind the other
// such requests, for 5 s at most, and is refused only then. So a caller that goes on has as many requests begun as its rate
// says, and refusals cost it time.
func (p *Permit) Begin(ctx context.Context, cost Cost, wait time.Duration) error {
	if cost != Upkeep {
		if err := p.limiter.work.take(p.caller, 1); err != nil {
			return err
		}
		p.isWork = true
	}
	if err := p.limiter.inFlight.take(p.caller, 1); err != nil {
		return err
	}
	p.limiter.arriving.give(p.caller, 1)
	p.hasBegun, p.cost, p.wait = true, cost, wait
	return p.pay(ctx, cost)
}

// Pay pays for one more request to the API server, such as a review of a right, at the rate of what the request asks for: those
// of a renewal need no room among the caller's acquires. It waits as [Permit.Begin] does. A nil permit allows all.
func (p *Permit) Pay(ctx context.Context) error {
	if p == nil {
		return nil
	}
	return p.pay(ctx, max(p.cost, Work))
}

// pay takes one call from the rates of the caller.
func (p *Permit) pay(ctx context.Context, cost Cost) error {
	l := p.limiter
	buckets := l.bucketsOf(p.caller, cost)
	err := l.pay(ctx, buckets, 0)
	if !isOfRate(err) {
		return err
	}
	start, patience := l.clock.Now(), p.wait-p.waited
	isTold := start.UnixNano() < buckets[0].toldUntil.Load()
	if isTold {
		patience = max(patience, maxHeldBack)
	}
	inTurn := func(ctx context.Context) error { return l.pay(ctx, buckets, patience) }
	if p.wait > 0 {
		err = p.Wait(ctx, inTurn)
	} else {
		err = inTurn(ctx)
	}
	if isTold && isOfRate(err) {
		if left := l.pause(ctx, maxHeldBack-l.clock.Since(start)); left != nil {
			return left
		}
	}
	p.waited += l.clock.Since(start)
	return l.tell(buckets, err)
}

// Stay takes a place among the requests that are no [Upkeep], if the request has none: it is about to be there for long. The error is
// a [*Error].
func (p *Permit) Stay() error {
	if p == nil || p.isWork {
		return nil
	}
	err := p.limiter.work.take(p.caller, 1)
	p.isWork = err == nil
	return err
}

// Waited returns how long the request has waited for its turns.
func (p *Permit) Waited() time.Duration { return p.waited }

// Spend pays for one more call of the cost, if there is room at the rates of the caller at once. A nil permit allows all.
func (p *Permit) Spend(ctx context.Context, cost Cost) error {
	if p == nil {
		return nil
	}
	buckets := p.limiter.bucketsOf(p.caller, cost)
	return p.limiter.tell(buckets, p.limiter.pay(ctx, buckets, 0))
}

// Hold keeps the count for work that outlives the request: [Permit.Release] must be called once more.
func (p *Permit) Hold() { p.holds.Add(1) }

// Release ends the count of the request, if nothing holds it.
func (p *Permit) Release() {
	if p.holds.Add(-1) >= 0 {
		return
	}
	if p.hasBegun {
		p.limiter.inFlight.give(p.caller, 1)
	} else {
		p.limiter.arriving.give(p.caller, 1)
	}
	if p.isWork {
		p.limiter.work.give(p.caller, 1)
	}
}

// BeginList counts a list of locks until end is called, once, or returns the [*Error] that refuses it: what reads
// the locks serves lists in the order in which they came, so many of one caller would delay those of all others.
func (p *Permit) BeginList() (end func(), err error) { return p.begin(p.limiter.lists) }

// BeginStream counts a stream of the locks of a whole namespace until end is called, once, or returns the
// [*Error] that refuses it.
func (p *Permit) BeginStream() (end func(), err error) { return p.begin(p.limiter.streams) }

func (p *Permit) begin(of *pool) (end func(), err error) {
	if err := of.take(p.caller, 1); err != nil {
		return nil, err
	}
	return func() { of.give(p.caller, 1) }, nil
}

// Wait runs wait with a context that also ends when the server stops; the error is then [ErrDraining].
func (p *Permit) Wait(ctx context.Context, wait func(context.Context) error) error {
	l := p.limiter
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	waiting, end := context.WithCancel(ctx)
	defer end()
	l.waits.Store(waiting, end) // Not by the permit: a request that waits for its lock may wait for its turn meanwhile.
	defer l.waits.Delete(waiting)
	if l.isDraining.Load() {
		end()
	}
	err := wait(waiting)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return ErrDraining
	}
	return err
}

// isOfRate reports whether the error says when there is room again at a rate.
func isOfRate(err error) bool {
	refused, ok := errors.AsType[*Error](err)
	return ok && refused.RetryAfter > 0
}
