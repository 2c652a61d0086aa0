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

// taker takes the locks a, b and c, and records what it was asked.
type taker struct {
	clock *clocktesting.FakePassiveClock
	// busy is how many tries find a lock held.
	busy map[int]int
	// waits is for how long each wait lasts, and releases for how long GiveBack.
	waits, releases time.Duration
	// failures are those of requests.
	failures map[string]error

	asked []string
}

func name(number int) string { return string(rune('a' + number)) }

// ask records a request, and returns its failure.
func (t *taker) ask(request string) error {
	t.asked = append(t.asked, request)
	return t.failures[request]
}

func (t *taker) pass(d time.Duration) { t.clock.SetTime(t.clock.Now().Add(d)) }

func (t *taker) Take(_ context.Context, number int, wait time.Duration) (string, error) {
	request := "try " + name(number)
	switch wait {
	case 0:
	case math.MaxInt64:
		request = "wait for " + name(number)
	default:
		request = fmt.Sprintf("wait %s for %s", wait, name(number))
	}
	if err := t.ask(request); err != nil {
		return "", err
	}
	t.pass(min(wait, t.waits))
	if wait == 0 && t.busy[number] > 0 {
		t.busy[number]--
		return "", fmt.Errorf("%s: %w", name(number), rules.ErrHeld)
	}
	return name(number), nil
}

func (t *taker) Confirm(_ context.Context, grant string) error {
	if t.ask("confirm "+grant) == errPanic { //nolint:errorlint // it is that very one
		panic(errPanic)
	}
	return t.failures["confirm "+grant]
}

func (t *taker) GiveBack(_ context.Context, grants []string) error {
	t.pass(t.releases)
	return t.ask("give back " + strings.Join(grants, " "))
}

var (
	errUnavailable = errors.New("unavailable")
	errStuck       = errors.New("stuck")
	errPanic       = errors.New("panic")
)

func TestAcquire(t *testing.T) {
	const forever = math.MaxInt64
	type busy = map[int]int
	type failures = map[string]error
	tests := map[string]struct {
		taker  taker
		limits together.Limits
		// asked is what the taker was asked.
		asked []string
		errs  []error
	}{
		"all are free": {asked: []string{"try a", "try b", "try c", "confirm a", "confirm b"}},
		"one is held, without a wait": {
			taker: taker{busy: busy{1: 1}},
			asked: []string{"try a", "try b", "give back a"}, errs: []error{rules.ErrHeld},
		},
		"one is held: nothing is kept beside the wait for it": {
			taker: taker{busy: busy{2: 1}}, limits: together.Limits{Wait: forever},
			asked: []string{"try a", "try b", "try c", "give back a b", "wait for c", "try a", "try b", "confirm c", "confirm a"},
		},
		"another is held each time: after three rounds, what is taken is kept": {
			taker: taker{busy: busy{0: 2, 2: 1}}, limits: together.Limits{Wait: forever},
			asked: []string{
				"try a", "wait for a", "try b", "try c", "give back a b", "wait for c",
				"try a", "give back c", "wait for a", "wait for b", "wait for c", "confirm a", "confirm b",
			},
		},
		"another is held each time, and the set is strict": {
			taker: taker{busy: busy{0: 2, 2: 1}}, limits: together.Limits{Wait: forever, IsStrict: true},
			asked: []string{
				"try a", "wait for a", "try b", "try c", "give back a b", "wait for c",
				"try a", "give back c", "wait for a", "try b", "try c", "confirm a", "confirm b",
			},
		},
		"one wait bounds all": {
			taker: taker{busy: busy{0: 1, 1: 1}, waits: 4 * time.Second}, limits: together.Limits{Wait: 6 * time.Second},
			asked: []string{"try a", "wait 6s for a", "try b", "give back a", "wait 2s for b", "try a", "try c", "confirm b", "confirm a"},
		},
		"what a release takes is a part of the wait": {
			taker: taker{busy: busy{1: 1}, releases: 4 * time.Second}, limits: together.Limits{Wait: 6 * time.Second},
			asked: []string{"try a", "try b", "give back a", "wait 2s for b", "try a", "try c", "confirm b", "confirm a"},
		},
		"the wait is over": {
			taker: taker{busy: busy{0: 1, 1: 1}, waits: 6 * time.Second}, limits: together.Limits{Wait: 6 * time.Second},
			asked: []string{"try a", "wait 6s for a", "try b", "give back a"}, errs: []error{rules.ErrHeld},
		},
		"a take fails": {
			taker: taker{failures: failures{"try c": errUnavailable}}, limits: together.Limits{Wait: forever},
			asked: []string{"try a", "try b", "try c", "give back a b"}, errs: []error{errUnavailable},
		},
		"a wait fails": {
			taker: taker{busy: busy{1: 1}, failures: failures{"wait for b": errUnavailable}}, limits: together.Limits{Wait: forever},
			asked: []string{"try a", "try b", "give back a", "wait for b"}, errs: []error{errUnavailable},
		},
		"a grant does not stand when the last is made": {
			taker: taker{failures: failures{"confirm b": errUnavailable}},
			asked: []string{"try a", "try b", "try c", "confirm a", "confirm b", "give back a b c"}, errs: []error{errUnavailable},
		},
		"what could not be given back is told": {
			taker: taker{failures: failures{"try c": errUnavailable, "give back a b": errStuck}},
			asked: []string{"try a", "try b", "try c", "give back a b"}, errs: []error{errStuck},
		},
		"no wait begins while something may be left": {
			taker: taker{busy: busy{1: 1}, failures: failures{"give back a": errStuck}}, limits: together.Limits{Wait: forever},
			asked: []string{"try a", "try b", "give back a"}, errs: []error{errStuck},
		},
		"a panic": {
			taker: taker{failures: failures{"confirm a": errPanic}},
			asked: []string{"try a", "try b", "try c", "confirm a", "give back a b c"}, errs: []error{errPanic},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.taker.clock = clocktesting.NewFakePassiveClock(time.Now())
			grants, err := acquire(t, &test.taker, test.limits)
			if got, want := strings.Join(test.taker.asked, ", "), strings.Join(test.asked, ", "); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if errors.Is(err, rules.ErrHeld) && !slices.Contains(test.errs, rules.ErrHeld) {
				t.Errorf("got %v, as if the wait were over", err)
			}
			for _, want := range test.errs {
				if !errors.Is(err, want) {
					t.Errorf("got %v, want one that matches %v", err, want)
				}
			}
			if len(test.errs) == 0 && (err != nil || !slices.Equal(grants, []string{"a", "b", "c"})) {
				t.Errorf("got %v, %v; want all", grants, err)
			}
		})
	}
}

// acquire acquires three locks, and returns errPanic if that panics.
func acquire(t *testing.T, taker *taker, limits together.Limits) (grants []string, err error) {
	t.Helper()
	defer func() {
		if recover() != nil {
			err = errPanic
		}
	}()
	return together.Acquire(t.Context(), taker.clock, taker, 3, limits)
}
