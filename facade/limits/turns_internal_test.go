package limits

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// asked begins a turn in a goroutine of its own, and tells of it.
type asked struct {
	answered chan struct{}
	end      func()
	err      error
	begun    time.Time
}

func ask(ctx context.Context, turns *Turns, tenant string, cost Cost) *asked {
	a := &asked{answered: make(chan struct{})}
	go func() {
		defer close(a.answered)
		a.end, a.err = turns.Begin(ctx, tenant, cost)
		a.begun = time.Now()
	}()
	synctest.Wait()
	return a
}

func (a *asked) expect(t *testing.T, what string, hasBegun bool) {
	t.Helper()
	synctest.Wait()
	isAnswered := false
	select {
	case <-a.answered:
		isAnswered = true
	default:
	}
	switch {
	case isAnswered != hasBegun:
		t.Errorf("%s is answered: %t, want %t", what, isAnswered, hasBegun)
	case isAnswered && a.err != nil:
		t.Errorf("%s: %v", what, a.err)
	}
}

func TestATenantAloneTakesNoTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(clock.RealClock{})
		for range 3 {
			call := ask(t.Context(), turns, "shop", Work)
			call.expect(t, "a call of a tenant that is alone", true)
			defer call.end()
		}
	})
}

func TestTenantsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(clock.RealClock{})
		ask(t.Context(), turns, "shop", Work).end() // It counts for a while.
		first := ask(t.Context(), turns, "payments", Work)
		second, third, release := ask(t.Context(), turns, "payments", Work), ask(t.Context(), turns, "payments", Work), ask(t.Context(), turns, "payments", Upkeep)
		second.expect(t, "a second call of a tenant that has one under way", false)
		shop := ask(t.Context(), turns, "shop", Work)
		shop.expect(t, "a call of the other tenant", true)

		first.end()
		second.expect(t, "the call that came first", true)
		release.expect(t, "a release behind it", false)
		second.end()
		release.expect(t, "a release that came last", true)
		third.expect(t, "a call behind a release", false)
		release.end()
		third.expect(t, "the last call", true)
		third.end()
		shop.end()
	})
}

func TestATurnIsNotForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(clock.RealClock{})
		other := ask(t.Context(), turns, "shop", Work)
		defer other.end()
		start := time.Now()
		slow := ask(t.Context(), turns, "payments", Work)
		second := ask(t.Context(), turns, "payments", Work)
		<-time.After(maxTurn)
		second.expect(t, "a call behind a slow one", true)
		if took := second.begun.Sub(start); took != maxTurn {
			t.Errorf("it began after %s, want %s", took, maxTurn)
		}
		slow.end() // Its turn was over: this is no second end.
		third := ask(t.Context(), turns, "payments", Work)
		third.expect(t, "a third call, while the second is under way", false)
		second.end()
		third.expect(t, "the third call after the second", true)
		third.end()
	})
}

func TestACallThatLeavesTakesNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(clock.RealClock{})
		other, first := ask(t.Context(), turns, "shop", Work), ask(t.Context(), turns, "payments", Work)
		defer other.end()
		ctx, leave := context.WithCancel(t.Context())
		gone, next := ask(ctx, turns, "payments", Work), ask(t.Context(), turns, "payments", Work)
		leave()
		<-gone.answered
		if !errors.Is(gone.err, context.Canceled) {
			t.Errorf("a call that left got %v", gone.err)
		}
		first.end()
		next.expect(t, "the call behind one that left", true)
		next.end()
	})
}

func TestACallThatWaitsForItsTurnTooLongIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(clock.RealClock{})
		defer func(other *asked) { other.end() }(ask(t.Context(), turns, "shop", Work))
		// Each of these keeps its turn for as long as it may, and so the last would have to wait for longer than 5 s.
		var calls []*asked
		for range int(maxHeldBack/maxTurn) + 10 {
			calls = append(calls, ask(t.Context(), turns, "payments", Work))
		}
		<-time.After(maxHeldBack)
		last := calls[len(calls)-1]
		<-last.answered
		if !errors.Is(last.err, ErrTurns) {
			t.Errorf("the last of %d calls got %v, want %v", len(calls), last.err, ErrTurns)
		}
		for _, call := range calls {
			<-call.answered
			if call.err == nil {
				call.end()
			}
		}
	})
}

func TestATenantIsAloneSoonAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(clock.RealClock{})
		ask(t.Context(), turns, "shop", Work).end()
		first := ask(t.Context(), turns, "payments", Work)
		second := ask(t.Context(), turns, "payments", Work)
		second.expect(t, "a second call right after the other tenant", false)
		<-time.After(2 * lingerFor)
		third := ask(t.Context(), turns, "payments", Work)
		third.expect(t, "a call a while after the other tenant", true)
		first.end()
		third.end()
		if len(turns.tenants) != 1 {
			t.Errorf("%d tenants are remembered", len(turns.tenants))
		}
		<-second.answered
		second.end()
	})
}

func TestTheAccountsOfANamespaceAreOneTenant(t *testing.T) {
	for user, want := range map[string]string{
		"system:serviceaccount:shop:worker": "namespace shop",
		"system:serviceaccount:shop:cron":   "namespace shop",
		"alice":                             "alice",
	} {
		if got := TenantOf(user); got != want {
			t.Errorf("%s is tenant %q, want %q", user, got, want)
		}
	}
}
