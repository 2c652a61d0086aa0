package together_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/together"
)

// busy is how many tries find a lock held.
type busy map[int]int

// taker takes the locks a, b and c, and records what it was asked.
type taker struct {
	clock *clocktesting.FakePassiveClock
	busy  busy
	// waits are for how long each wait lasts; it ends with the lock if that is free by then.
	waits time.Duration
	// failure fails the first take of a lock, stuck the end of one.
	failure, stuck map[string]error

	asked []string
}

func name(number int) string { return string(rune('a' + number)) }

func (t *taker) Take(_ context.Context, number int, wait time.Duration) (string, error) {
	request := "try " + name(number)
	switch wait {
	case 0:
	case math.MaxInt64:
		request = "wait for " + name(number)
	default:
		request = fmt.Sprintf("wait %s for %s", wait, name(number))
	}
	t.asked = append(t.asked, request)
	if err := t.failure[name(number)]; err != nil {
		return "", err
	}
	if wait > 0 {
		t.clock.SetTime(t.clock.Now().Add(min(wait, t.waits)))
	}
	if wait == 0 && t.busy[number] > 0 {
		t.busy[number]--
		return "", fmt.Errorf("%s: %w", name(number), rules.ErrHeld)
	}
	return name(number), nil
}

func (t *taker) GiveBack(_ context.Context, grant string) error {
	t.asked = append(t.asked, "give back "+grant)
	return t.stuck[grant]
}

var (
	errUnavailable = errors.New("unavailable")
	errStuck       = errors.New("stuck")
)

func TestAcquire(t *testing.T) {
	const forever = math.MaxInt64
	tests := map[string]struct {
		taker  taker
		limits together.Limits
		// asked is what the taker was asked.
		asked []string
		last  int
		errs  []error
	}{
		"all are free": {asked: []string{"try a", "try b", "try c"}, last: 2},
		"one is held, without a wait": {
			taker: taker{busy: busy{1: 1}},
			asked: []string{"try a", "try b", "give back a"}, errs: []error{rules.ErrHeld},
		},
		"one is held: nothing is kept beside the wait for it": {
			taker: taker{busy: busy{2: 1}}, limits: together.Limits{Wait: forever},
			asked: []string{"try a", "try b", "try c", "give back b", "give back a", "wait for c", "try a", "try b"}, last: 1,
		},
		"another is held each time: at last what was taken is kept": {
			taker: taker{busy: busy{0: 2, 2: 1}}, limits: together.Limits{Wait: forever},
			asked: []string{
				"try a", "wait for a", "try b", "try c", "give back b", "give back a", "wait for c",
				"try a", "give back c", "wait for a", "wait for b", "wait for c",
			}, last: 2,
		},
		"another is held each time, and the set is strict": {
			taker: taker{busy: busy{0: 2, 2: 1}}, limits: together.Limits{Wait: forever, IsStrict: true},
			asked: []string{
				"try a", "wait for a", "try b", "try c", "give back b", "give back a", "wait for c",
				"try a", "give back c", "wait for a", "try b", "try c",
			}, last: 2,
		},
		"one wait bounds all": {
			taker: taker{busy: busy{0: 1, 1: 1}, waits: 4 * time.Second}, limits: together.Limits{Wait: 6 * time.Second},
			asked: []string{"try a", "wait 6s for a", "try b", "give back a", "wait 2s for b", "try a", "try c"}, last: 2,
		},
		"the wait is over": {
			taker: taker{busy: busy{0: 1, 1: 1}, waits: 6 * time.Second}, limits: together.Limits{Wait: 6 * time.Second},
			asked: []string{"try a", "wait 6s for a", "try b", "give back a"}, errs: []error{rules.ErrHeld},
		},
		"a take fails": {
			taker: taker{failure: map[string]error{"c": errUnavailable}}, limits: together.Limits{Wait: forever},
			asked: []string{"try a", "try b", "try c", "give back b", "give back a"}, errs: []error{errUnavailable},
		},
		"what could not be given back is told, and keeps nothing else from it": {
			taker: taker{failure: map[string]error{"c": errUnavailable}, stuck: map[string]error{"b": errStuck}},
			asked: []string{"try a", "try b", "try c", "give back b", "give back a"}, errs: []error{errUnavailable, errStuck},
		},
		"no wait begins while something may be left": {
			taker: taker{busy: busy{1: 1}, stuck: map[string]error{"a": errStuck}}, limits: together.Limits{Wait: forever},
			asked: []string{"try a", "try b", "give back a"}, errs: []error{errStuck},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.taker.clock = clocktesting.NewFakePassiveClock(time.Now())
			grants, last, err := together.Acquire(t.Context(), test.taker.clock, &test.taker, 3, test.limits)
			if got, want := strings.Join(test.taker.asked, ", "), strings.Join(test.asked, ", "); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			for _, want := range test.errs {
				if !errors.Is(err, want) {
					t.Errorf("got %v, want one that matches %v", err, want)
				}
			}
			if len(test.errs) == 0 && (err != nil || last != test.last || !slices.Equal(grants, []string{"a", "b", "c"})) {
				t.Errorf("got %v, last %d, %v; want all, last %d", grants, last, err, test.last)
			}
		})
	}
}
