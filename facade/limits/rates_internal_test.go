package limits

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// rated is a limiter with a clock of the test.
type rated struct {
	*Limiter

	t     *testing.T
	clock *clocktesting.FakeClock
}

func newRated(t *testing.T, limits Limits) *rated {
	t.Helper()
	fake := clocktesting.NewFakeClock(time.Date(2024, 3, 15, 10, 30, 0, 0, time.UTC))
	limiter, err := New(limits, fake)
	if err != nil {
		t.Fatal(err)
	}
	return &rated{limiter, t, fake}
}

func (r *rated) permit(caller Caller) *Permit {
	r.t.Helper()
	permit, err := r.Admit(caller, Work)
	if err != nil {
		r.t.Fatal(err)
	}
	return permit
}

// spend returns how many calls of a caller are let through, of at most 1,000.
func (r *rated) spend(caller Caller, cost Cost) int {
	r.t.Helper()
	permit := r.permit(caller)
	defer permit.Release()
	for count := range 1000 {
		if permit.Spend(cost) != nil {
			return count
		}
	}
	return 1000
}

func (r *rated) wantSpent(title string, caller Caller, cost Cost, want int) {
	r.t.Helper()
	if got := r.spend(caller, cost); got != want {
		r.t.Errorf("%s: %d calls, want %d", title, got, want)
	}
}

func TestACallerAtItsRateIsRefusedUntilThereIsRoom(t *testing.T) {
	r := newRated(t, Limits{RatePerCaller: 4})
	r.wantSpent("at first", worker, Work, 8)
	err := r.permit(worker).Spend(Work)
	refused, ok := errors.AsType[*Error](err)
	if !ok || !refused.IsCaller || refused.Limit != "rate_per_caller" || refused.RetryAfter != 250*time.Millisecond || refused.Wait() != time.Second {
		t.Errorf("got %+v", err)
	}
	r.wantSpent("another caller", foreign, Work, 8)
	r.wantSpent("what costs nothing", worker, Free, 1000)
	r.clock.Step(time.Second)
	r.wantSpent("a second later", worker, Work, 4)
	r.clock.Step(time.Hour)
	r.wantSpent("an hour later", worker, Work, 8)
}

// A caller whose acquires are refused must not lose the locks that it holds.
func TestAcquiresLeaveRoomForRenewalsAndReleases(t *testing.T) {
	r := newRated(t, Limits{RatePerCaller: 4, RatePerNamespace: 4})
	r.wantSpent("acquires", worker, Work, 8)
	r.wantSpent("renewals and releases", worker, Upkeep, 16)
	r.clock.Step(time.Second)
	r.wantSpent("acquires a second later", worker, Work, 4)
	r.wantSpent("renewals and releases a second later", worker, Upkeep, 8)
}

func TestServiceAccountsOfANamespaceShareItsRate(t *testing.T) {
	r := newRated(t, Limits{RatePerCaller: 4, RatePerNamespace: 6})
	r.wantSpent("the first account", worker, Work, 8)
	r.wantSpent("the second account", rival, Work, 4)
	r.wantSpent("of another namespace", foreign, Work, 8)
	r.wantSpent("a user without a namespace", person, Work, 8)
	// What the namespace refuses does not count against the caller.
	r.clock.Step(time.Second)
	r.wantSpent("the first account a second later", worker, Work, 4)
	r.wantSpent("the second account a second later", rival, Work, 2)
}

// A call that waits for a lock need not be refused: it waits for its turn.
func TestCallsThatWaitTakeTurns(t *testing.T) {
	r := newRated(t, Limits{RatePerCaller: 2})
	r.wantSpent("at first", worker, Work, 4)
	synctest.Test(t, func(t *testing.T) {
		type turn struct {
			waited time.Duration
			err    error
		}
		turns := make(chan turn, 2)
		for range 2 {
			go func() {
				waited, err := r.permit(worker).AwaitTurn(t.Context(), Work, time.Minute)
				turns <- turn{waited, err}
			}()
		}
		synctest.Wait()
		for _, want := range []time.Duration{500 * time.Millisecond, time.Second} {
			r.clock.Step(500 * time.Millisecond)
			if got := <-turns; got.err != nil || got.waited != want {
				t.Errorf("waited %s, %v, want %s", got.waited, got.err, want)
			}
			synctest.Wait()
			if len(turns) > 0 {
				t.Error("two turns at once")
			}
		}
	})
}

func TestACallThatCannotWaitForItsTurnIsRefusedAtOnce(t *testing.T) {
	r := newRated(t, Limits{RatePerCaller: 1})
	r.wantSpent("at first", worker, Work, 2)
	permit := r.permit(worker)
	_, err := permit.AwaitTurn(t.Context(), Work, time.Second)
	if refused, ok := errors.AsType[*Error](err); !ok || refused.RetryAfter != time.Second {
		t.Errorf("got %v", err)
	}
	r.clock.Step(time.Second)
	if waited, err := permit.AwaitTurn(t.Context(), Work, time.Nanosecond); waited != 0 || err != nil {
		t.Errorf("with room: %s, %v", waited, err)
	}
}

func TestACallThatLeavesGivesItsTurnBack(t *testing.T) {
	r := newRated(t, Limits{RatePerCaller: 1})
	r.wantSpent("at first", worker, Work, 2)
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := r.permit(worker).AwaitTurn(gone, Work, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	r.clock.Step(time.Second)
	r.wantSpent("a second later", worker, Work, 1)
}

// turnsOf lets calls of the caller wait for their turns, one after the other. Each tells when it is over.
func (r *rated) turnsOf(ctx context.Context, caller Caller, count int, patience time.Duration) []<-chan error {
	var turns []<-chan error
	for range count {
		turn := make(chan error, 1)
		permit := r.permit(caller)
		go func() {
			defer permit.Release()
			_, err := permit.AwaitTurn(ctx, Work, patience)
			turn <- err
		}()
		synctest.Wait()
		turns = append(turns, turn)
	}
	return turns
}

// What those who leave would have used is there for those after them, and for later calls.
func TestCallsThatLeaveUseNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRated(t, Limits{RatePerCaller: 1})
		r.wantSpent("at first", worker, Work, 2)
		gone, leave := context.WithCancel(t.Context())
		left := r.turnsOf(gone, worker, 50, time.Hour)
		stays := r.turnsOf(t.Context(), worker, 1, time.Hour)[0]
		leave()
		for _, each := range left {
			if err := <-each; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		}
		synctest.Wait()
		r.clock.Step(time.Second)
		if err := <-stays; err != nil {
			t.Error(err)
		}
		r.clock.Step(time.Second)
		r.wantSpent("a second later", worker, Work, 1)
	})
}

func TestACallerWhoHasGoneTakesNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRated(t, Limits{RatePerCaller: 1})
		gone, leave := context.WithCancel(t.Context())
		leave()
		if err := <-r.turnsOf(gone, worker, 1, time.Hour)[0]; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		r.wantSpent("later", worker, Work, 2)
	})
}

// Calls that wait for their namespace would otherwise go on at a bucket that no later call knows.
func TestAnAllowanceThatIsWaitedForIsKept(t *testing.T) {
	full := newAllowance(1)()
	if now := time.Now(); !isFull(full, now) {
		t.Error("an unused allowance is kept")
	}
	full.upkeep.turns.PushBack(make(chan struct{}))
	if isFull(full, time.Now()) {
		t.Error("an allowance is forgotten while a call waits for it")
	}
}

// A caller must not have to pay for what its namespace refuses.
func TestATurnThatTheNamespaceRefusesCostsTheCallerNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRated(t, Limits{RatePerCaller: 4, RatePerNamespace: 4})
		r.wantSpent("another account", rival, Work, 8)
		for range 20 {
			if err := <-r.turnsOf(t.Context(), worker, 1, time.Nanosecond)[0]; err == nil {
				t.Error("it had a turn")
			}
		}
		gone, leave := context.WithCancel(t.Context())
		turns := r.turnsOf(gone, worker, 3, time.Hour)
		leave()
		for _, each := range turns {
			if err := <-each; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		}
		synctest.Wait()
		if tokens := r.rates.callers.entries[worker].work.TokensAt(r.clock.Now()); tokens != 8 {
			t.Errorf("the caller has %g calls left, want 8", tokens)
		}
	})
}

// The calls of one caller wait in one place of their namespace, and no longer than they can.
func TestACallWaitsNoLongerForItsTurnThanItCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRated(t, Limits{RatePerCaller: 4, RatePerNamespace: 4})
		r.wantSpent("another account", rival, Work, 8)
		var others []<-chan error
		for index := range 8 {
			account := callerNamed(fmt.Sprint("system:serviceaccount:payments:", index))
			others = append(others, r.turnsOf(t.Context(), account, 1, time.Hour)...)
		}
		first := r.turnsOf(t.Context(), worker, 1, time.Hour)[0]
		second := r.turnsOf(t.Context(), worker, 1, 300*time.Millisecond)[0]
		for range 3 {
			r.clock.Step(100 * time.Millisecond)
			synctest.Wait()
		}
		if refused, ok := errors.AsType[*Error](<-second); !ok || !refused.IsCaller {
			t.Errorf("got %v", refused)
		}
		for range 40 {
			r.clock.Step(100 * time.Millisecond)
			synctest.Wait()
		}
		for _, each := range append(others, first) {
			if err := <-each; err != nil {
				t.Error(err)
			}
		}
	})
}

// A call that does not wait takes nothing from those that do.
func TestCallsThatWaitComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRated(t, Limits{RatePerCaller: 2})
		r.wantSpent("at first", worker, Work, 4)
		turn := r.turnsOf(t.Context(), worker, 1, time.Hour)[0]
		late, err := r.permit(worker).AwaitTurn(t.Context(), Work, 600*time.Millisecond)
		if refused, ok := errors.AsType[*Error](err); !ok || refused.RetryAfter != time.Second || late != 0 {
			t.Errorf("one that cannot wait for its turn after that: %s, %v", late, err)
		}
		r.clock.SetTime(r.clock.Now().Add(499 * time.Millisecond))
		r.wantSpent("beside one that waits", worker, Work, 0)
		r.clock.Step(time.Millisecond)
		if err := <-turn; err != nil {
			t.Error(err)
		}
	})
}

// Callers come and go, and must not be remembered for ever.
func TestIdleAllowancesAreForgotten(t *testing.T) {
	r := newRated(t, Limits{RatePerCaller: 1})
	for round := range 10 {
		for index := range 100 {
			r.wantSpent("a new caller", callerNamed(fmt.Sprint("user ", round, " ", index)), Work, 2)
		}
		if round == 0 && len(r.rates.callers.entries) != 100 {
			t.Errorf("%d of 100 are remembered that are not idle", len(r.rates.callers.entries))
		}
		r.clock.Step(time.Minute)
	}
	if left := len(r.rates.callers.entries); left > 200 {
		t.Errorf("%d are remembered", left)
	}
}

func TestATableIsBounded(t *testing.T) {
	table := Table[int, *int]{New: func() *int { return new(int) }, IsIdle: func(*int, time.Time) bool { return false }}
	for key := range maxEntries + 100 {
		table.Get(key, time.Time{})
	}
	if len(table.entries) > maxEntries {
		t.Errorf("%d entries", len(table.entries))
	}
}
