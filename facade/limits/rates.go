package limits

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// DefaultRatePerCaller is in calls and reviews a second. An API server of two cores makes some 100 to 400 writes a
// second (docs/performance.md), so one caller that does nothing but acquire and release leaves
// others a part of even the smallest.
const DefaultRatePerCaller = 100

const (
	// burstSeconds is for how long a caller that has asked for nothing may go on at twice its rate.
	burstSeconds = 2
	// upkeepFactor is how many renewals and releases there may be for each other call.
	upkeepFactor = 2
	// maxHeldBack is how long a call is held back for its turn at most. It leaves most of the time that a request has to be read.
	maxHeldBack = 5 * time.Second
	// maxBuckets bounds the memory. Who has asked for nothing for the longest time is forgotten, and begins anew.
	maxBuckets = 1 << 16
)

// Cost is what a call costs the API server.
type Cost int

const (
	// Free calls cost it nothing.
	Free Cost = iota
	// Work is a request or a few: an acquire, a read, a list, a forced release, a review of a right for these.
	Work
	// Upkeep renews or releases what the caller holds. It has a rate of its own: a caller whose acquires use up theirs must
	// not lose the locks that it holds, and a release makes room for others.
	Upkeep
)

// bucket is the rate of the calls of a cost, of a caller or of a namespace.
type bucket struct {
	*rate.Limiter

	// mu makes a reservation that is too late, and its end, one step: a later one would keep what it has taken.
	mu      sync.Mutex
	refusal *Error
	// toldUntil is when the caller may try again, in nanoseconds of Unix time, as a refusal has told it.
	toldUntil atomic.Int64
}

// bucketKey is that of a caller or, if that is a namespace alone, of the namespace.
type bucketKey struct {
	of   Caller
	cost Cost
}

// bucketsOf returns the bucket of the caller and then that of its namespace; none where there is no rate.
func (l *Limiter) bucketsOf(caller Caller, cost Cost) []*bucket {
	if cost == Free || l.ratePerCaller == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	buckets := []*bucket{l.bucket(bucketKey{caller, cost}, l.ratePerCaller, ErrCallerRate)}
	if caller.namespace != "" {
		buckets = append(buckets, l.bucket(bucketKey{Caller{namespace: caller.namespace}, cost}, l.ratePerCaller*perNamespace, ErrNamespaceRate))
	}
	return buckets
}

// bucket needs the mutex.
func (l *Limiter) bucket(key bucketKey, perSecond int, refusal *Error) *bucket {
	found, _ := l.buckets.Get(key)
	if known, ok := found.(*bucket); ok {
		return known
	}
	if key.cost == Upkeep {
		perSecond *= upkeepFactor
	}
	added := &bucket{Limiter: rate.NewLimiter(rate.Limit(perSecond), perSecond*burstSeconds), refusal: refusal}
	l.buckets.Add(key, added)
	return added
}

// pay takes one call from each of the buckets, and waits for that less than patience: of a caller that waits for its own,
// nothing is taken from its namespace yet. The error is that of ctx, or the [*Error] of the bucket that has no room by then.
func (l *Limiter) pay(ctx context.Context, buckets []*bucket, patience time.Duration) error {
	now := l.clock.Now()
	end := now.Add(patience)
	var turns []*rate.Reservation
	for _, each := range buckets {
		turn, err := each.reserve(now, end)
		if err == nil {
			turns = append(turns, turn)
			err = l.pause(ctx, turn.DelayFrom(now))
			now = l.clock.Now()
		}
		if err != nil {
			for _, taken := range turns {
				taken.CancelAt(now)
			}
			return err
		}
	}
	return nil
}

// reserve takes the next call of the bucket, or returns the [*Error] that says when there is room if that is not before the end.
func (b *bucket) reserve(now, end time.Time) (*rate.Reservation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	turn := b.ReserveN(now, 1)
	wait := turn.DelayFrom(now)
	if wait == 0 || wait < end.Sub(now) {
		return turn, nil
	}
	turn.CancelAt(now)
	refused := *b.refusal
	refused.RetryAfter = wait
	return nil, &refused
}

// pause returns when the time has passed, or the error of ctx.
func (l *Limiter) pause(ctx context.Context, length time.Duration) error {
	if length <= 0 {
		return nil
	}
	timer := l.clock.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tell records when a refusal tells the caller to try again.
func (l *Limiter) tell(buckets []*bucket, err error) error {
	if refused, ok := errors.AsType[*Error](err); ok && isOfRate(err) {
		buckets[0].toldUntil.Store(l.clock.Now().Add(refused.Wait()).UnixNano())
	}
	return err
}
