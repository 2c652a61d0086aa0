package lock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// RetryPolicy says how an acquisition is repeated that failed because the lock is held or the
// service is unavailable. A zero field means its default.
type RetryPolicy struct {
	// Base is the pause after the first attempt; 100 ms by default.
	Base time.Duration
	// Factor multiplies each further pause; 2 by default, at least 1.
	Factor float64
	// Jitter is the random part of a pause; it spreads callers that failed together. With the
	// default of 0.5, a pause of 100 ms takes 50 to 150 ms. At most 1; negative means none.
	Jitter float64
	// Tries is how many attempts are made, the first included; 10 by default.
	Tries int
	// Ceiling bounds the total time: no attempt begins after it, and an attempt that does not wait
	// for a holder ends with it. It counts from the call or, if attempts wait, from the first
	// failure. 5 s by default.
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

// pause returns how long to wait after the given number of attempts.
func (p RetryPolicy) pause(tries int) time.Duration {
	pause := float64(p.Base) * math.Pow(p.Factor, float64(tries-1))
	pause = min(pause, float64(p.Ceiling))
	return time.Duration(jittered(pause, p.Jitter))
}

// random returns a number in [0, 1), which spreads requests and is no secret. Tests draw from a source of their own.
var random = rand.Float64

// jittered returns a random value that differs from the given one by at most this part of it.
func jittered(value, part float64) float64 {
	return value * (1 - part + 2*part*random())
}

type retries struct {
	RetryPolicy
	key   v1alpha1.FullKey
	clock clock.WithTicker
	// isWaiting says that attempts wait for a holder and have no time limit of their own.
	isWaiting bool
}

// run repeats the attempt until it succeeds, fails with an error that is not worth retrying, or
// the policy ends.
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
			return fmt.Errorf("after %d attempts: %w", tries, Interrupted(ctx, r.key, err))
		}
	}
}

// try makes one attempt within the rest of the ceiling.
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

// isWorthRetrying reports whether the same request may succeed a little later. After a timed-out
// wait for the holder the caller's time is used up.
func isWorthRetrying(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrHeld) && !errors.Is(err, ErrTimeout)
}

// sleep waits for d. It returns false if ctx ends first.
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
