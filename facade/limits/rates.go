package limits

import (
	"context"
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
type allowance struct{ work, upkeep *rate.Limiter }

func (a *allowance) of(cost Cost) *rate.Limiter {
	if cost == Upkeep {
		return a.upkeep
	}
	return a.work
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
	return func() *allowance { return &allowance{newBucket(perSecond), newBucket(perSecond * upkeepFactor)} }
}

func newBucket(perSecond int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), perSecond*burstSeconds)
}

// isFull reports whether nothing of an allowance is used.
func isFull(a *allowance, now time.Time) bool {
	return a.work.TokensAt(now) >= float64(a.work.Burst()) && a.upkeep.TokensAt(now) >= float64(a.upkeep.Burst())
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
	now := l.clock.Now()
	caller, namespace := l.callerBucket(p.caller, cost, now), l.namespaceBucket(p.caller, cost, now)
	// A call that is refused uses nothing up.
	if err := refuse(caller, now, 0, ErrCallerRate); err != nil {
		return err
	}
	if err := refuse(namespace, now, 0, ErrNamespaceRate); err != nil {
		return err
	}
	for _, bucket := range [...]*rate.Limiter{caller, namespace} {
		if bucket != nil {
			bucket.AllowN(now, 1)
		}
	}
	return nil
}

// callerBucket needs the mutex. It returns nil if there is no rate.
func (l *Limiter) callerBucket(who Caller, cost Cost, now time.Time) *rate.Limiter {
	if l.limits.RatePerCaller == 0 {
		return nil
	}
	return l.rates.callers.Get(who, now).of(cost)
}

// namespaceBucket needs the mutex. It returns nil if there is no rate, or no namespace.
func (l *Limiter) namespaceBucket(who Caller, cost Cost, now time.Time) *rate.Limiter {
	if l.limits.RatePerNamespace == 0 || who.namespace == "" {
		return nil
	}
	return l.rates.namespaces.Get(who.namespace, now).of(cost)
}

// refuse returns the error, with the time after which the bucket has room again, unless that is at
// most patience.
func refuse(bucket *rate.Limiter, now time.Time, patience time.Duration, refusal *Error) error {
	if bucket == nil {
		return nil
	}
	missing := max(0, 1-bucket.TokensAt(now))
	wait := time.Duration(missing / float64(bucket.Limit()) * float64(time.Second))
	if wait <= patience {
		return nil
	}
	refused := *refusal
	refused.RetryAfter = wait
	return &refused
}

// AwaitTurn is [Permit.Spend] for a call that waits for a lock anyway: it waits until the rates
// have room, if that is less than patience, and returns how long it has waited. It needs
// [Permit.Wait]. What follows costs nothing more, however long the call waits for the lock. The
// error is an [*Error] or that of ctx. A nil permit allows all.
func (p *Permit) AwaitTurn(ctx context.Context, cost Cost, patience time.Duration) (waited time.Duration, err error) {
	if p == nil || cost == Free {
		return 0, nil
	}
	// One after the other: what waits for room of its caller takes none of the namespace yet.
	waited, err = p.await(ctx, cost, (*Limiter).callerBucket, patience, ErrCallerRate)
	if err != nil {
		return waited, err
	}
	more, err := p.await(ctx, cost, (*Limiter).namespaceBucket, patience-waited, ErrNamespaceRate)
	return waited + more, err
}

// await takes from a bucket and waits until the bucket has it.
func (p *Permit) await(
	ctx context.Context, cost Cost, bucketOf func(*Limiter, Caller, Cost, time.Time) *rate.Limiter, patience time.Duration, refusal *Error,
) (time.Duration, error) {
	l := p.limiter
	l.mu.Lock()
	now := l.clock.Now()
	bucket := bucketOf(l, p.caller, cost, now)
	if err := refuse(bucket, now, max(0, patience-1), refusal); err != nil || bucket == nil {
		l.mu.Unlock()
		return 0, err
	}
	reserved := bucket.ReserveN(now, 1)
	l.mu.Unlock()
	delay := reserved.DelayFrom(now)
	if delay == 0 {
		return 0, nil
	}
	timer := l.clock.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C():
		return delay, nil
	case <-ctx.Done():
		reserved.CancelAt(l.clock.Now())
		return 0, ctx.Err()
	}
}
