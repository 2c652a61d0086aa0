package limits

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// spend returns how many calls of a caller are let through, of at most 1,000.
func (l *limited) spend(caller Caller, cost Cost) int {
	l.t.Helper()
	permit := l.permit(caller)
	defer permit.Release()
	for count := range 1000 {
		if err := permit.Spend(l.t.Context(), cost); err != nil {
			return count
		}
	}
	return 1000
}

func (l *limited) wantSpent(title string, caller Caller, cost Cost, want int) {
	l.t.Helper()
	if got := l.spend(caller, cost); got != want {
		l.t.Errorf("%s: %d calls, want %d", title, got, want)
	}
}

func TestACallerAtItsRateIsRefusedUntilThereIsRoom(t *testing.T) {
	l := newLimited(t, Limits{RatePerCaller: 4})
	l.wantSpent("at first", worker, Work, 8)
	err := l.permit(worker).Spend(t.Context(), Work)
	refused, ok := errors.AsType[*Error](err)
	if !ok || !refused.IsCaller || refused.Limit != "rate_per_caller" || refused.RetryAfter != 250*time.Millisecond || refused.Wait() != time.Second {
		t.Errorf("got %+v", err)
	}
	l.wantSpent("another caller", foreign, Work, 8)
	l.wantSpent("what costs nothing", worker, Free, 1000)
	l.clock.Step(time.Second)
	l.wantSpent("a second later", worker, Work, 4)
	l.clock.Step(time.Hour)
	l.wantSpent("an hour later", worker, Work, 8)
}

// A caller whose acquires are refused must not lose the locks that it holds.
func TestAcquiresLeaveRoomForRenewalsAndReleases(t *testing.T) {
	l := newLimited(t, Limits{RatePerCaller: 4})
	l.wantSpent("acquires", worker, Work, 8)
	l.wantSpent("renewals and releases", worker, Upkeep, 16)
	l.clock.Step(time.Second)
	l.wantSpent("acquires a second later", worker, Work, 4)
	l.wantSpent("renewals and releases a second later", worker, Upkeep, 8)
}

func TestServiceAccountsOfANamespaceShareItsRate(t *testing.T) {
	l := newLimited(t, Limits{RatePerCaller: 4})
	l.wantSpent("the first account", worker, Work, 8)
	l.wantSpent("the second account", rival, Work, 8)
	l.wantSpent("the third account", third, Work, 0)
	l.wantSpent("of another namespace", foreign, Work, 8)
	l.wantSpent("a user without a namespace", person, Work, 8)
	l.clock.Step(time.Second)
	// What the namespace has refused has not counted against the caller.
	l.wantSpent("the third account a second later", third, Work, 8)
	l.wantSpent("the first account a second later", worker, Work, 0)
}

// turn is what became of a call that waits for its turn.
type turn struct {
	waited time.Duration
	err    error
}

// turnsOf lets calls of the caller wait for their turns, in their order.
func (l *limited) turnsOf(ctx context.Context, caller Caller, count int, patience time.Duration) []<-chan turn {
	var turns []<-chan turn
	for range count {
		came := make(chan turn, 1)
		permit := l.permit(caller)
		go func() {
			err := permit.Begin(ctx, Work, patience)
			came <- turn{permit.Waited(), err}
		}()
		synctest.Wait()
		turns = append(turns, came)
	}
	return turns
}

// A call that waits for a lock need not be refused: it waits for its turn, and others come after it.
func TestCallsThatWaitTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimited(t, Limits{RatePerCaller: 2})
		for _, came := range l.turnsOf(t.Context(), worker, 4, 0) {
			if got := <-came; got != (turn{}) {
				t.Errorf("at first: %+v", got)
			}
		}
		turns := l.turnsOf(t.Context(), worker, 2, time.Minute)
		late := <-l.turnsOf(t.Context(), worker, 1, 1500*time.Millisecond)[0]
		if refused, ok := errors.AsType[*Error](late.err); !ok || refused.RetryAfter != 1500*time.Millisecond || late.waited != 0 {
			t.Errorf("one that cannot wait until they have had theirs: %+v", late)
		}
		for index, want := range []time.Duration{500 * time.Millisecond, time.Second} {
			l.clock.Step(500*time.Millisecond - 1)
			l.wantSpent("beside those that wait", worker, Work, 0)
			l.clock.Step(1)
			if got := <-turns[index]; got.err != nil || got.waited != want {
				t.Errorf("waited %s, %v, want %s", got.waited, got.err, want)
			}
			synctest.Wait()
			if index == 0 && len(turns[1]) > 0 {
				t.Error("two turns at once")
			}
		}
	})
}

func TestACallThatLeavesGivesItsTurnBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimited(t, Limits{RatePerCaller: 1})
		l.wantSpent("at first", worker, Work, 2)
		gone, leave := context.WithCancel(t.Context())
		left := l.turnsOf(gone, worker, 1, time.Minute)[0]
		leave()
		if got := <-left; !errors.Is(got.err, context.Canceled) {
			t.Errorf("got %+v", got)
		}
		l.clock.Step(time.Second)
		l.wantSpent("a second later", worker, Work, 1)
	})
}

// The calls of one account that wait must not keep the other accounts of its namespace waiting.
func TestACallThatWaitsForItsOwnRateTakesNothingFromItsNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimited(t, Limits{RatePerCaller: 4})
		l.wantSpent("at first", worker, Work, 8)
		gone, leave := context.WithCancel(t.Context())
		l.turnsOf(gone, worker, 20, time.Hour)
		l.wantSpent("another account", rival, Work, 8)
		l.turnsOf(gone, third, 1, time.Hour)
		l.clock.Step(124 * time.Millisecond)
		if got := <-l.turnsOf(t.Context(), third, 1, time.Millisecond)[0]; got.err == nil {
			t.Error("an account has a turn before one that waits for the namespace")
		}
		leave()
	})
}

// arrival is what became of a call, and when.
type arrival struct {
	err   error
	after time.Duration
}

// arrive lets a call arrive that does not wait for a lock, and returns what becomes of it.
func (l *limited) arrive(ctx context.Context, caller Caller, cost Cost) <-chan arrival {
	came := make(chan arrival, 1)
	start := l.clock.Now()
	permit := l.permit(caller)
	go func() {
		err := permit.Begin(ctx, cost, 0)
		came <- arrival{err, l.clock.Since(start)}
	}()
	synctest.Wait()
	return came
}

// now returns what became of a call at once.
func (l *limited) now(came <-chan arrival) arrival {
	l.t.Helper()
	select {
	case got := <-came:
		return got
	default:
		l.t.Fatal("the call is held back")
		return arrival{}
	}
}

// tell uses up the rate of a caller, and has it told to come later.
func (l *limited) tell(caller Caller) {
	l.t.Helper()
	for range 1000 {
		if got := l.now(l.arrive(l.t.Context(), caller, Work)); got.err != nil {
			return
		}
	}
	l.t.Fatal("the caller is not refused")
}

// It is answered later and later, as many calls as its rate says are begun, and the others are refused only after 5 s.
func TestACallerThatGoesOnHasItsCallsBegunAtItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimited(t, Limits{RatePerCaller: 2})
		l.tell(worker)
		const calls = 14
		var came []<-chan arrival
		for range calls {
			came = append(came, l.arrive(t.Context(), worker, Work))
		}
		for range 10 {
			l.clock.Step(500 * time.Millisecond)
			synctest.Wait()
		}
		for number, each := range came {
			got := l.now(each)
			want := time.Duration(number+1) * 500 * time.Millisecond
			// The tenth would have its turn after 5 s, which is not less.
			isBegun := number < 9
			if (got.err == nil) != isBegun || got.after != min(want, 5*time.Second) {
				t.Errorf("call %d: %+v, want its turn after %s, or a refusal after 5 s", number, got, want)
			}
		}
	})
}

// A refusal says when to try again. From then on a call is refused at once, or begun.
func TestACallerThatWaitsAsItWasToldIsNotHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimited(t, Limits{RatePerCaller: 2})
		l.tell(worker)
		l.clock.Step(time.Second)
		for range 2 {
			if got := l.now(l.arrive(t.Context(), worker, Work)); got.err != nil {
				t.Errorf("got %+v", got)
			}
		}
		got := l.now(l.arrive(t.Context(), worker, Work))
		if refused, ok := errors.AsType[*Error](got.err); !ok || !refused.IsCaller || refused.Wait() != time.Second {
			t.Errorf("got %+v", got)
		}
	})
}

func TestNobodyElseIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimited(t, Limits{RatePerCaller: 2})
		l.tell(worker)
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		l.arrive(ctx, worker, Work)
		for name, caller := range map[string]Caller{"another account": rival, "another namespace": foreign, "a user": person} {
			if got := l.now(l.arrive(t.Context(), caller, Work)); got.err != nil {
				t.Errorf("%s: %+v", name, got)
			}
		}
		if got := l.now(l.arrive(t.Context(), worker, Upkeep)); got.err != nil {
			t.Errorf("a renewal: %+v", got)
		}
		if got := l.now(l.arrive(t.Context(), worker, Free)); got.err != nil {
			t.Errorf("what costs nothing: %+v", got)
		}
	})
}

// The review of a right costs the API server a request. It is part of a call that has its own.
func TestReviewsArePaidForAtTheRateOfTheirCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimited(t, Limits{RatePerCaller: 1})
		acquire, renewal := l.permit(worker), l.permit(worker)
		if err := errors.Join(acquire.Begin(t.Context(), Work, time.Minute), renewal.Begin(t.Context(), Upkeep, 0)); err != nil {
			t.Fatal(err)
		}
		l.wantSpent("acquires", worker, Work, 1)
		if err := renewal.Pay(t.Context()); err != nil {
			t.Errorf("a renewal whose caller's acquires use up their rate: %v", err)
		}
		paid := make(chan error, 1)
		go func() { paid <- acquire.Pay(t.Context()) }()
		synctest.Wait()
		l.clock.Step(time.Second)
		if err := <-paid; err != nil || acquire.Waited() != time.Second {
			t.Errorf("one that may wait for a lock: %v after %s", err, acquire.Waited())
		}
		l.wantSpent("renewals", worker, Upkeep, 4)
		asked := l.permit(person)
		if err := asked.Begin(t.Context(), Free, 0); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := asked.Pay(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := asked.Pay(t.Context()); err == nil {
			t.Error("reviews of calls that cost nothing else have no rate")
		}
	})
}

func TestACallThatLeavesWhileItIsHeldBackIsNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimited(t, Limits{RatePerCaller: 1})
		l.tell(worker)
		ctx, leave := context.WithCancel(t.Context())
		var left []<-chan arrival
		for range 10 { // Some have a turn, and some would be refused.
			left = append(left, l.arrive(ctx, worker, Work))
		}
		leave()
		synctest.Wait()
		for _, each := range left {
			if got := l.now(each); !errors.Is(got.err, context.Canceled) {
				t.Errorf("got %+v", got)
			}
		}
	})
}
