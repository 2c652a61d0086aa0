package servertime_test

import (
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/lock/servertime"
	"forrst.dev/lock-operator/test/support/machine"
)

var (
	_ clock.WithTicker = (*servertime.Clock)(nil)

	noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
)

// answer makes the clock observe an instant response from a server whose clock shows now.
func answer(c *servertime.Clock, now time.Time) {
	at := c.Local().Now()
	c.Observe(at, at, now.Truncate(time.Second))
}

// checkTime checks that the clock is within a second of now.
func checkTime(t *testing.T, c *servertime.Clock, now time.Time) {
	t.Helper()
	if got := c.Now(); got.Sub(now).Abs() > time.Second {
		t.Errorf("the clock shows %s at %s", got, now)
	}
}

func TestNowIsTheLocalTimeBeforeTheFirstResponse(t *testing.T) {
	local := clocktesting.NewFakeClock(noon)
	c := servertime.New(local)
	local.Step(time.Minute)
	if got := c.Now(); !got.Equal(noon.Add(time.Minute)) {
		t.Errorf("got %s", got)
	}
}

func TestNowKeepsALocalTimeWithinTheBounds(t *testing.T) {
	local := clocktesting.NewFakeClock(noon.Add(123456789))
	c := servertime.New(local)
	for range 10 {
		answer(c, local.Now().Add(20*time.Millisecond))
		local.Step(1300 * time.Millisecond)
	}
	if off := c.Now().Sub(local.Now()); off != 0 {
		t.Errorf("corrected by %s", off)
	}
}

func TestNowCorrectsAWrongLocalTime(t *testing.T) {
	for _, offset := range []time.Duration{-time.Hour, -2 * time.Second, 2 * time.Second, time.Hour, 20 * 365 * 24 * time.Hour} {
		local := clocktesting.NewFakeClock(noon)
		c := servertime.New(local)
		answer(c, noon.Add(offset))
		checkTime(t, c, noon.Add(offset))
		local.Step(time.Minute)
		checkTime(t, c, noon.Add(offset+time.Minute))
		if since := c.Since(noon.Add(offset)); (since - time.Minute).Abs() > time.Second {
			t.Errorf("a minute has lasted %s", since)
		}
	}
}

func TestReadingsAreJudgedByLaterResponses(t *testing.T) {
	local := clocktesting.NewFakeClock(noon)
	c := servertime.New(local)
	first := c.Read()
	if c.MaxError(first) != 0 || !first.Time.Equal(noon) {
		t.Errorf("before any response: %+v, wrong by %s", first, c.MaxError(first))
	}
	answer(c, noon.Add(time.Hour))
	if got := c.MaxError(first); got < time.Hour || got > time.Hour+time.Second {
		t.Errorf("wrong by %s at most, want an hour and up to a second", got)
	}
	second := c.Read()
	local.Step(time.Minute)
	if c.MaxError(second) != 0 {
		t.Errorf("time that has passed: %+v, wrong by %s", second, c.MaxError(second))
	}
	local.Step(10 * time.Second) // A step: the server's clock has not moved.
	answer(c, noon.Add(time.Hour+time.Minute))
	if got := servertime.MaxError(c, second); got < 10*time.Second || got > 12*time.Second {
		t.Errorf("wrong by %s at most, want ten seconds and up to two", got)
	}
	if servertime.MaxError(local, servertime.Read(local)) != 0 {
		t.Error("a clock that cannot judge its readings does")
	}
}

func TestStepOfTheLocalClock(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, -3 * time.Second, 3 * time.Second, time.Hour} {
		local := clocktesting.NewFakeClock(noon)
		c := servertime.New(local)
		answer(c, noon)
		local.Step(step)
		answer(c, noon)
		checkTime(t, c, noon)
	}
}

func TestStepDuringARequest(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, time.Hour} {
		local := clocktesting.NewFakeClock(noon)
		c := servertime.New(local)
		answer(c, noon)
		sent := local.Now()
		local.Step(step)
		c.Observe(sent, local.Now(), noon)
		if got := c.Now(); !got.Equal(local.Now()) {
			t.Errorf("corrected by %s, though the response may be from before the step", got.Sub(local.Now()))
		}
		answer(c, noon)
		checkTime(t, c, noon)
	}
}

func TestSuspendedMachine(t *testing.T) {
	local := &readings{now: time.Now()}
	c := servertime.New(local)
	answer(c, local.now)
	before := local.now
	local.now = machine.MonotonicBehind(local.now, time.Hour)
	if got := local.now.Sub(before); got != 0 {
		t.Fatalf("the monotonic clock went on by %s", got)
	}
	if c.HasHeard(time.Minute) {
		t.Error("an answer was heard after an hour that the monotonic clock has not seen")
	}
	c.Observe(before, local.now, before)
	if c.HasHeard(time.Minute) {
		t.Error("an answer to a request from before that hour was heard after it")
	}
	answer(c, before.Add(time.Hour))
	checkTime(t, c, before.Add(time.Hour))
	if !c.HasHeard(time.Minute) {
		t.Error("no answer was heard")
	}
}

func TestStepOfTheWallClockHasNoEffect(t *testing.T) {
	local := &readings{now: time.Now()}
	c := servertime.New(local)
	answer(c, local.now)
	before := c.Now()
	local.now = machine.MonotonicBehind(local.now, -time.Hour)
	if got := c.Now(); !got.Equal(before) {
		t.Errorf("the time went from %s to %s", before, got)
	}
}

func TestAnswersAreHeard(t *testing.T) {
	local := clocktesting.NewFakeClock(noon)
	c := servertime.New(local)
	if c.HasHeard(time.Hour) {
		t.Error("an answer was heard before there was one")
	}
	answer(c, noon)
	local.Step(20 * time.Second)
	if !c.HasHeard(20*time.Second) || c.HasHeard(19*time.Second) {
		t.Error("the answer was heard at another time")
	}
	local.Step(-21 * time.Second)
	if c.HasHeard(time.Hour) {
		t.Error("an answer was heard in the future")
	}
	if !servertime.HasHeard(local, 0) || servertime.HasHeard(c, time.Hour) {
		t.Error("only a clock that compares itself can tell")
	}
}

func TestConcurrentUse(t *testing.T) {
	c := servertime.New(clock.RealClock{})
	var users sync.WaitGroup
	for range 8 {
		users.Go(func() {
			for range 1000 {
				answer(c, time.Now().Add(-time.Hour))
				checkTime(t, c, time.Now().Add(-time.Hour))
				if !c.HasHeard(time.Minute) {
					t.Error("no answer was heard")
				}
			}
		})
	}
	users.Wait()
}

// readings is a clock that returns the given readings.
type readings struct {
	clock.RealClock
	now time.Time
}

func (r *readings) Now() time.Time { return r.now }

func TestJump(t *testing.T) {
	now := time.Now()
	for jump, want := range map[time.Duration]time.Duration{
		time.Hour: time.Hour, -time.Hour: -time.Hour, 51 * time.Millisecond: 51 * time.Millisecond, 50 * time.Millisecond: 0, 0: 0, -50 * time.Millisecond: 0,
	} {
		later := machine.MonotonicBehind(now.Add(time.Minute), jump)
		if got := servertime.Jump(now, later); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got := servertime.Jump(now.Add(24*time.Hour), later); got != want {
			t.Errorf("from a time to come: got %s, want %s", got, want)
		}
		if got := servertime.Jump(now.Round(0), later); got != 0 {
			t.Errorf("without a monotonic part: got %s", got)
		}
	}
}
