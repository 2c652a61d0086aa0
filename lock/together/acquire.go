package together

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/lock/rules"
)

// MaxLocks is how many locks a set has at most.
const MaxLocks = 16

// FreeRounds is how often a set that finds a lock held gives back what it has before it waits. After that it keeps what it
// has while it waits, unless it is strict.
const FreeRounds = 3

// forever is a wait without a limit.
const forever time.Duration = math.MaxInt64

// Taker acquires and releases the locks of one set, which are numbered from 0 in the order of their keys. Its methods are
// called one at a time.
type Taker[G any] interface {
	// Take acquires a lock. It waits at most that long for its holder: zero is not at all, and the largest duration is
	// without a limit. If the lock is held, the error matches [rules.ErrHeld].
	Take(ctx context.Context, number int, wait time.Duration) (G, error)
	// Confirm reads a lock, and returns an error unless it has the grant still.
	Confirm(ctx context.Context, grant G) error
	// GiveBack releases grants, also if ctx has ended. It returns why some may be left.
	GiveBack(ctx context.Context, grants []G) error
}

// Limits bound an acquisition.
type Limits struct {
	// Wait is how long all waits of the set take at most. Zero means that it does not wait, the largest duration is
	// without a limit.
	Wait time.Duration
	// IsStrict says that the set never keeps one lock while it waits for another.
	IsStrict bool
}

// Acquire acquires all locks of a set, and returns the grants by the numbers of the locks. All of them stand when the last
// is made, so its fencing token is larger than that of each earlier grant of any of the locks, and smaller than that of
// each later one. If it fails or panics, it has given back what it took. The error is that of GiveBack, if it has failed, and
// else that of the call that has. It matches [rules.ErrHeld] if a lock was held for the whole wait.
func Acquire[G any](ctx context.Context, clock clock.PassiveClock, taker Taker[G], count int, limits Limits) (grants []G, err error) {
	s := &set[G]{taker: taker, count: count, limits: limits, clock: clock, began: clock.Now()}
	defer func() { // A panic leaves nothing behind either.
		if failure := s.giveBack(ctx); failure != nil {
			err = failure
		}
	}()
	if err := s.acquire(ctx); err != nil {
		return nil, err
	}
	for _, taken := range s.taken[:count-1] {
		if err := taker.Confirm(ctx, taken.grant); err != nil {
			return nil, err
		}
	}
	grants = make([]G, count)
	for _, taken := range s.taken {
		grants[taken.number] = taken.grant
	}
	s.taken = nil
	return grants, nil
}

// set is a set of which some locks are taken.
type set[G any] struct {
	taker  Taker[G]
	count  int
	limits Limits
	clock  clock.PassiveClock
	began  time.Time
	// taken are the locks that the set has, in the order in which they were taken.
	taken []taken[G]
}

type taken[G any] struct {
	number int
	grant  G
}

func (s *set[G]) acquire(ctx context.Context) error {
	for round := 1; ; round++ {
		held, err := s.takeRest(ctx)
		if err == nil || !errors.Is(err, rules.ErrHeld) || s.left() == 0 {
			return err
		}
		if err := s.giveBack(ctx); err != nil {
			return err
		}
		if round >= FreeRounds && !s.limits.IsStrict {
			return s.takeInOrder(ctx)
		}
		if err := s.take(ctx, held, s.left()); err != nil {
			return err
		}
	}
}

// takeRest takes what the set has not, without waiting. If that fails it returns the number of the lock.
func (s *set[G]) takeRest(ctx context.Context) (failed int, err error) {
	for number := range s.count {
		if slices.ContainsFunc(s.taken, func(taken taken[G]) bool { return taken.number == number }) {
			continue
		}
		if err := s.take(ctx, number, 0); err != nil {
			return number, err
		}
	}
	return 0, nil
}

// takeInOrder waits for one lock after the other and keeps each.
func (s *set[G]) takeInOrder(ctx context.Context) error {
	for number := range s.count {
		if err := s.take(ctx, number, s.left()); err != nil {
			return err
		}
	}
	return nil
}

func (s *set[G]) take(ctx context.Context, number int, wait time.Duration) error {
	grant, err := s.taker.Take(ctx, number, wait)
	if err == nil {
		s.taken = append(s.taken, taken[G]{number, grant})
	}
	return err
}

// giveBack releases all that the set has.
func (s *set[G]) giveBack(ctx context.Context) error {
	if len(s.taken) == 0 {
		return nil
	}
	var grants []G
	for _, taken := range s.taken {
		grants = append(grants, taken.grant)
	}
	s.taken = nil
	return s.taker.GiveBack(ctx, grants)
}

// left is for how long the set may still wait.
func (s *set[G]) left() time.Duration {
	if s.limits.Wait == forever {
		return forever
	}
	return max(0, s.limits.Wait-s.clock.Since(s.began))
}
