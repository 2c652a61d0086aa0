package lock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"k8s.io/utils/clock"
)

// RetryPolicy says how an acquisition is repeated that failed because the lock is held
// or the service is unavailable. The zero value of each field means its default.
type RetryPolicy struct {
	// Base is the pause after the first attempt; 100 ms by default.
	Base time.Duration
	// Factor is what each further pause is longer by; 2 by default, at least 1.
	Factor float64
	// Jitter is how much of a pause is left to chance, so that callers who failed
	// together do not return together: with the default of 0.5, a pause of 100 ms takes
	// 50 to 150 ms. At most 1; negative means none.
	Jitter float64
	// Tries is how many attempts there are, the first included; 10 by default.
	Tries int
	// Ceiling bounds the whole: no attempt begins, and none that does not wait for a
	// holder lasts, beyond it. It counts from the call, or, where an attempt waits, from
	// the first failure. 5 s by default.
	Ceiling time.Duration
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.Base <= 0 {
		p.Base = 100 * time.Millisecond
	}
	if p.Factor == 0 {
		p.Factor = 2
	}
	p.Factor = max(p.Factor, 1)
	if p.Jitter == 0 {
		p.Jitter = 0.5
	}
	p.Jitter = min(max(p.Jitter, 0), 1)
	if p.Tries <= 0 {
		p.Tries = 10
	}
	if p.Ceiling <= 0 {
		p.Ceiling = 5 * time.Second
	}
	return p
}

// pause returns how long to wait after so many attempts.
func (p RetryPolicy) pause(tries int) time.Duration {
	pause := float64(p.Base) * math.Pow(p.Factor, float64(tries-1))
	pause = min(pause, float64(p.Ceiling))
	return time.Duration(jittered(pause, p.Jitter))
}

// jittered spreads a value evenly by the given part of it to either side.
func jittered(value, part float64) float64 {
	return value * (1 - part + 2*part*rand.Float64()) //nolint:gosec // spreads requests; there is nothing to gain from guessing it
}

// retries repeats attempts.
type retries struct {
	RetryPolicy
	clock clock.WithTicker
	// isWaiting says that an attempt takes as long as it has to.
	isWaiting bool
}

// run returns when an attempt succeeds or fails for good, or there is to be no other.
func (r *retries) run(ctx context.Context, attempt func(context.Context) error) error {
	began := r.clock.Now()
	for tries := 1; ; tries++ {
		err := r.try(ctx, r.Ceiling-r.clock.Since(began), attempt)
		if err == nil || !isWorthRetrying(err) {
			return err
		}
		if r.isWaiting && tries == 1 {
			began = r.clock.Now()
		}
		pause := r.pause(tries)
		if tries >= r.Tries || r.clock.Since(began)+pause >= r.Ceiling {
			return fmt.Errorf("gave up after %d attempts: %w", tries, err)
		}
		if !sleep(ctx, r.clock, pause) {
			return fmt.Errorf("%w, after %d attempts: %w", ctx.Err(), tries, err)
		}
	}
}

// try makes one attempt, within what is left of the ceiling.
func (r *retries) try(ctx context.Context, left time.Duration, attempt func(context.Context) error) error {
	if r.isWaiting {
		return attempt(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	err := attempt(limited)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: no answer within %s", ErrUnavailable, r.Ceiling)
	}
	return err
}

// isWorthRetrying reports whether the same request may succeed a little later. After a
// wait for the holder that took as long as allowed there is no time left.
func isWorthRetrying(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrHeld) && !errors.Is(err, ErrTimeout)
}

// sleep waits and reports false if ctx ended first.
func sleep(ctx context.Context, clock clock.WithTicker, d time.Duration) bool {
	timer := clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}
