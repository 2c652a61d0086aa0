package limits

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// arrival is what became of a call, and when.
type arrival struct {
	hasPaid bool
	err     error
	after   time.Duration
}

// arrive lets a call arrive, and returns what becomes of it.
func (r *rated) arrive(ctx context.Context, caller Caller, cost Cost, mayWait bool) <-chan arrival {
	came := make(chan arrival, 1)
	start := r.clock.Now()
	go func() {
		hasPaid, err := r.Arrive(ctx, caller, cost, mayWait)
		came <- arrival{hasPaid, err, r.clock.Since(start)}
	}()
	synctest.Wait()
	return came
}

// now returns what became of a call at once.
func (r *rated) now(came <-chan arrival) arrival {
	r.t.Helper()
	select {
	case got := <-came:
		return got
	default:
		r.t.Fatal("the call is held back")
		return arrival{}
	}
}

// tell uses up the rate of a caller, and has it told to come later.
func (r *rated) tell(caller Caller) {
	r.t.Helper()
	for range 1000 {
		if got := r.now(r.arrive(r.t.Context(), caller, Work, false)); got.err != nil {
			return
		}
	}
	r.t.Fatal("the caller is not refused")
}

// It is answered later and later, as many calls as its rate says are begun, and the others are refused only after 5 s.
func TestACallerThatGoesOnHasItsCallsBegunAtItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRated(t, Limits{RatePerCaller: 2})
		r.tell(worker)
		const calls = 14
		var came []<-chan arrival
		for range calls {
			came = append(came, r.arrive(t.Context(), worker, Work, false))
		}
		for range 10 {
			r.clock.Step(500 * time.Millisecond)
			synctest.Wait()
		}
		for number, each := range came {
			got := r.now(each)
			want := time.Duration(number+1) * 500 * time.Millisecond
			// The tenth would have its turn after 5 s, which is not less.
			isBegun := number < 9
			if got.hasPaid != isBegun || (got.err == nil) != isBegun || got.after != min(want, 5*time.Second) {
				t.Errorf("call %d: %+v, want its turn after %s, or a refusal after 5 s", number, got, want)
			}
		}
	})
}

// A refusal says when to try again. From then on a call is refused at once, or begun.
func TestACallerThatWaitsAsItWasToldIsNotHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRated(t, Limits{RatePerCaller: 2})
		r.tell(worker)
		r.clock.Step(time.Second)
		for range 2 {
			if got := r.now(r.arrive(t.Context(), worker, Work, false)); !got.hasPaid || got.err != nil {
				t.Errorf("got %+v", got)
			}
		}
		got := r.now(r.arrive(t.Context(), worker, Work, false))
		if refused, ok := errors.AsType[*Error](got.err); !ok || !refused.IsCaller || refused.Wait() != time.Second {
			t.Errorf("got %+v", got)
		}
	})
}

func TestNobodyElseIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRated(t, Limits{RatePerCaller: 2, RatePerNamespace: 8})
		r.tell(worker)
		r.arrive(t.Context(), worker, Work, false)
		for name, caller := range map[string]Caller{"another account": rival, "another namespace": foreign, "a user": person} {
			if got := r.now(r.arrive(t.Context(), caller, Work, false)); !got.hasPaid {
				t.Errorf("%s: %+v", name, got)
			}
		}
		if got := r.now(r.arrive(t.Context(), worker, Upkeep, false)); !got.hasPaid {
			t.Errorf("a renewal: %+v", got)
		}
		if got := r.now(r.arrive(t.Context(), worker, Free, false)); got.err != nil {
			t.Errorf("what costs nothing: %+v", got)
		}
	})
}

// Whether a call waits for a lock is in its body. One that may is let through, and pays when its turn comes.
func TestACallThatMayWaitPaysLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRated(t, Limits{RatePerCaller: 1})
		r.wantSpent("at first", worker, Work, 2)
		r.clock.Step(time.Second)
		if got := r.now(r.arrive(t.Context(), worker, Work, true)); !got.hasPaid {
			t.Errorf("with room: %+v", got)
		}
		for range 2 { // Its caller is told nothing.
			if got := r.now(r.arrive(t.Context(), worker, Work, true)); got.hasPaid || got.err != nil {
				t.Errorf("without room: %+v", got)
			}
		}
	})
}

func TestACallThatHasPaidIsNotCountedAgain(t *testing.T) {
	r := newRated(t, Limits{RatePerCaller: 1})
	if hasPaid, err := r.Arrive(t.Context(), worker, Work, true); !hasPaid || err != nil {
		t.Fatal(hasPaid, err)
	}
	permit := r.permit(worker)
	permit.Paid(Work)
	if err := permit.Spend(Upkeep); err != nil {
		t.Error(err)
	}
	for range 2 { // What it has paid for, and another one.
		if _, err := permit.AwaitTurn(t.Context(), Work, time.Nanosecond); err != nil {
			t.Error(err)
		}
	}
	if err := permit.Spend(Work); err == nil {
		t.Error("it was not counted")
	}
}

func TestACallThatLeavesWhileItIsHeldBackUsesNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRated(t, Limits{RatePerCaller: 1})
		r.tell(worker)
		ctx, cancel := context.WithCancel(t.Context())
		var left []<-chan arrival
		for range 10 { // Some have a turn, and some are refused.
			left = append(left, r.arrive(ctx, worker, Work, false))
		}
		cancel()
		synctest.Wait()
		for _, each := range left {
			if got := r.now(each); !errors.Is(got.err, context.Canceled) {
				t.Errorf("got %+v", got)
			}
		}
		next := r.arrive(t.Context(), worker, Work, false)
		r.clock.Step(time.Second)
		synctest.Wait()
		if got := r.now(next); !got.hasPaid {
			t.Errorf("the next one: %+v", got)
		}
	})
}
