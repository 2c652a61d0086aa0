package limits

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"time"

	"golang.org/x/time/rate"
)

// The default rates, in calls a second. An API server of two cores makes some 100 to 400 writes a
// second (docs/performance.md), so one caller that does nothing but acquire and release leaves
// others a part of even the smallest.
const (
	DefaultRatePerCaller    = 100
	DefaultRatePerNamespace = 200
)

const (
	// burstSeconds is for how long a caller that has asked for nothing may go on at twice its rate.
	burstSeconds = 2
	// upkeepFactor is how many renewals and releases there may be for each other call.
	upkeepFactor = 2
	// maxHeldBack is how long a call is held back whose caller goes on before the time that it was told. It leaves most of
	// the time that a request has to be read.
	maxHeldBack = 5 * time.Second
)

// Cost is what a call costs the API server.
type Cost int

const (
	// Free calls cost it nothing.
	Free Cost = iota
	// Work is a request or a few: an acquire, a read, a list, a forced release.
	Work
	// Upkeep renews or releases what the caller holds. It has an allowance of its own: a caller
	// whose acquires use up theirs must not lose the locks that it holds, and a release makes room
	// for others.
	Upkeep
)

// allowance is what a caller, or a namespace, may ask of the API server.
type allowance struct{ work, upkeep bucket }

func (a *allowance) of(cost Cost) *bucket {
	if cost == Upkeep {
		return &a.upkeep
	}
	return &a.work
}

// bucket has room for calls at a rate. It needs the mutex of the limiter.
type bucket struct {
	*rate.Limiter

	// toldUntil is when the caller may try again, as a refusal has told it.
	toldUntil time.Time
	// turns are those of the calls that wait for room, in the order in which they came: channels
	// that get a value when theirs is the next. None of them has taken anything yet, so one that leaves
	// has nothing to give back.
	turns list.List
}

// untilRoom is how long it takes until there is room for one more call after so many others.
func (b *bucket) untilRoom(now time.Time, others int) time.Duration {
	missing := max(0, float64(1+others)-b.TokensAt(now))
	return time.Duration(missing / float64(b.Limit()) * float64(time.Second))
}

// refuse returns the error, with the time after which the bucket has room for another call, unless that is
// less than patience or at once.
func (b *bucket) refuse(now time.Time, patience time.Duration, refusal *Error) error {
	wait := b.untilRoom(now, b.turns.Len())
	if wait == 0 || wait < patience {
		return nil
	}
	refused := *refusal
	refused.RetryAfter = wait
	return &refused
}

// rates are the allowances of callers and namespaces. They need a mutex of their owner.
type rates struct {
	callers    Table[Caller, *allowance]
	namespaces Table[string, *allowance]
}

func newRates(limits Limits) rates {
	return rates{
		callers:    Table[Caller, *allowance]{New: newAllowance(limits.RatePerCaller), IsIdle: isFull},
		namespaces: Table[string, *allowance]{New: newAllowance(limits.RatePerNamespace), IsIdle: isFull},
	}
}

func newAllowance(perSecond int) func() *allowance {
	return func() *allowance {
		return &allowance{work: newBucket(perSecond), upkeep: newBucket(perSecond * upkeepFactor)}
	}
}

func newBucket(perSecond int) bucket {
	return bucket{Limiter: rate.NewLimiter(rate.Limit(perSecond), perSecond*burstSeconds)}
}

// isFull reports whether nothing of an allowance is used, and no call waits for its turn. Such a call
// keeps the bucket that it waits at.
func isFull(a *allowance, now time.Time) bool {
	return a.work.isFull(now) && a.upkeep.isFull(now)
}

func (b *bucket) isFull(now time.Time) bool {
	return b.turns.Len() == 0 && b.TokensAt(now) >= float64(b.Burst())
}

// charge is a bucket that a call takes from, with the error that tells that it has no room.
type charge struct {
	*bucket

	refusal *Error
}

// charges are what a call takes from.
type charges [2]charge

// charges returns the bucket of the caller and then that of its namespace. A bucket is nil if there is no rate. It needs
// the mutex.
func (l *Limiter) charges(caller Caller, cost Cost, now time.Time) (buckets charges) {
	if l.limits.RatePerCaller > 0 {
		buckets[0] = charge{l.rates.callers.Get(caller, now).of(cost), ErrCallerRate}
	}
	if l.limits.RatePerNamespace > 0 && caller.namespace != "" {
		buckets[1] = charge{l.rates.namespaces.Get(caller.namespace, now).of(cost), ErrNamespaceRate}
	}
	return buckets
}

// ofCaller returns the bucket that tells what the caller was told, or nil: that of the caller unless only its namespace has
// a rate. What a namespace has used up is told to each of its callers.
func (buckets charges) ofCaller() *bucket { return cmp.Or(buckets[0].bucket, buckets[1].bucket) }

// tell records the refusal that the caller is told.
func (buckets charges) tell(err error, now time.Time) error {
	if refused, ok := errors.AsType[*Error](err); ok {
		of := buckets.ofCaller()
		of.toldUntil = now.Add(refused.Wait())
	}
	return err
}

// Arrive counts a call of the cost against the rates of its caller and of the caller's namespace, before anything is done for
// it: its body is not read yet, and no right reviewed. A call that fails later has cost as much. The error is the [*Error]
// that refuses the call, or that of ctx.
//
// A call that comes before the time at which a refusal has told its caller to try again waits for its turn behind the
// other such calls, for 5 s at most, and is refused only then. A caller that goes on so is answered later and later, and has
// as many calls begun as its rate says.
//
// MayWait says that the call may be one that waits for a lock, as its body tells. If there is no room for it, it goes on
// without having paid, see [Permit.AwaitTurn].
func (l *Limiter) Arrive(ctx context.Context, caller Caller, cost Cost, mayWait bool) (hasPaid bool, err error) {
	if cost == Free {
		return false, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	buckets := l.charges(caller, cost, now)
	err = buckets.spend(now)
	switch {
	case err == nil:
		return true, nil
	case now.Before(buckets.ofCaller().toldUntil):
		return l.holdBack(ctx, buckets)
	case mayWait:
		return false, nil
	}
	return false, buckets.tell(err, now)
}

// holdBack lets a call wait for its turn. It needs the mutex.
func (l *Limiter) holdBack(ctx context.Context, buckets charges) (hasPaid bool, err error) {
	waited, err := l.awaitTurn(ctx, buckets, maxHeldBack)
	if err == nil {
		return true, nil
	}
	if rest := maxHeldBack - waited; rest > 0 && ctx.Err() == nil {
		l.pause(ctx, rest, nil)
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return false, buckets.tell(err, l.clock.Now())
}

// Paid says that [Limiter.Arrive] has counted the call: the next of Spend or AwaitTurn for this cost takes nothing.
func (p *Permit) Paid(cost Cost) { p.paid = cost }

// takePaid reports whether the call has been counted, once. It needs the mutex.
func (p *Permit) takePaid(cost Cost) bool {
	isPaid := p.paid == cost
	if isPaid {
		p.paid = Free
	}
	return isPaid
}

// Spend counts a call of the cost against the rates of its caller and of the caller's namespace, or
// returns the [*Error] that refuses it and says when there is room. A nil permit allows all.
func (p *Permit) Spend(cost Cost) error {
	if p == nil || cost == Free {
		return nil
	}
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.takePaid(cost) {
		return nil
	}
	now := l.clock.Now()
	buckets := l.charges(p.caller, cost, now)
	return buckets.tell(buckets.spend(now), now)
}

// spend takes from all buckets, or from none. It needs the mutex.
func (buckets charges) spend(now time.Time) error {
	for _, each := range buckets {
		if each.bucket != nil {
			if err := each.refuse(now, 0, each.refusal); err != nil {
				return err
			}
		}
	}
	take(buckets, now)
	return nil
}

func take(buckets charges, now time.Time) {
	for _, each := range buckets {
		if each.bucket != nil {
			each.ReserveN(now, 1)
		}
	}
}

// AwaitTurn is [Permit.Spend] for a call that waits for a lock anyway: it waits until the rates
// have room, if that is less than patience, and returns how long it has waited. It needs
// [Permit.Wait]. What follows costs nothing more, however long the call waits for the lock. The
// error is an [*Error] or that of ctx; then the call has used nothing up. A nil permit allows all.
func (p *Permit) AwaitTurn(ctx context.Context, cost Cost, patience time.Duration) (waited time.Duration, err error) {
	if p == nil || cost == Free {
		return 0, nil
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.takePaid(cost) {
		return 0, nil
	}
	buckets := l.charges(p.caller, cost, l.clock.Now())
	waited, err = l.awaitTurn(ctx, buckets, patience)
	return waited, buckets.tell(err, l.clock.Now())
}

// awaitTurn takes from the buckets when it is the turn of the call. It needs the mutex.
func (l *Limiter) awaitTurn(ctx context.Context, buckets charges, patience time.Duration) (waited time.Duration, err error) {
	start := l.clock.Now()
	if buckets.spend(start) == nil {
		return 0, nil
	}
	// One after the other: of each caller one call at a time waits for room of its namespace.
	leaveCaller, err := l.await(ctx, buckets[0], patience)
	if err != nil {
		return l.clock.Since(start), err
	}
	defer leaveCaller()
	leaveNamespace, err := l.await(ctx, buckets[1], patience-l.clock.Since(start))
	if err != nil {
		return l.clock.Since(start), err
	}
	defer leaveNamespace()
	now := l.clock.Now()
	take(buckets, now)
	return now.Sub(start), nil
}

// await waits until the bucket has room for the call and none is before it, which stays so until leave is
// called. It needs the mutex, which it gives up while it waits; leave needs it, too.
func (l *Limiter) await(ctx context.Context, bucket charge, patience time.Duration) (leave func(), err error) {
	if bucket.bucket == nil {
		return func() {}, nil
	}
	if err := bucket.refuse(l.clock.Now(), patience, bucket.refusal); err != nil {
		return nil, err
	}
	next := make(chan struct{}, 1)
	turn := bucket.turns.PushBack(next)
	leave = func() {
		bucket.turns.Remove(turn)
		if first := bucket.turns.Front(); first != nil {
			tell, _ := first.Value.(chan struct{})
			select {
			case tell <- struct{}{}:
			default: // It was told before.
			}
		}
	}
	end := l.clock.Now().Add(patience)
	for {
		if err := ctx.Err(); err != nil {
			leave()
			return nil, err
		}
		now := l.clock.Now()
		// What is before may take longer than its rate says: it may wait for its namespace.
		wait := end.Sub(now)
		if bucket.turns.Front() == turn {
			room := bucket.untilRoom(now, 0)
			if room == 0 {
				return leave, nil
			}
			wait = min(wait, room)
		}
		if wait <= 0 {
			leave()
			return nil, bucket.refusal
		}
		l.pause(ctx, wait, next)
	}
}

// pause gives the mutex up until the time has passed, or something is told, or ctx ends.
func (l *Limiter) pause(ctx context.Context, wait time.Duration, told <-chan struct{}) {
	l.mu.Unlock()
	defer l.mu.Lock()
	timer := l.clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-told:
	case <-ctx.Done():
	}
}
