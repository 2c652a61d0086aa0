package limits

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// asked begins a turn in a goroutine of its own, and tells of it.
type asked struct {
	answered chan struct{}
	turn     *Turn
	err      error
	begun    time.Time
}

func ask(ctx context.Context, turns *Turns, tenant string, cost Cost) *asked {
	a := &asked{answered: make(chan struct{})}
	go func() {
		defer close(a.answered)
		a.turn, a.err = turns.Begin(ctx, tenant, cost)
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
		turns := &Turns{}
		for range 3 {
			call := ask(t.Context(), turns, "shop", Work)
			call.expect(t, "a call of a tenant that is alone", true)
			defer call.turn.End()
		}
	})
}

func TestTenantsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := &Turns{}
		first := ask(t.Context(), turns, "payments", Work)
		ask(t.Context(), turns, "shop", Work).turn.End() // It counts for a while.
		second, release, third := ask(t.Context(), turns, "payments", Work), ask(t.Context(), turns, "payments", Upkeep), ask(t.Context(), turns, "payments", Work)
		second.expect(t, "a second call of a tenant that has one under way", false)
		shop := ask(t.Context(), turns, "shop", Work)
		shop.expect(t, "a call of the other tenant", true)

		first.turn.End()
		release.expect(t, "a release that came later", true)
		second.expect(t, "a call behind a release", false)
		release.turn.End()
		release.turn.End() // This changes nothing.
		second.expect(t, "the call that came first", true)
		third.expect(t, "the call behind it", false)
		second.turn.End()
		third.expect(t, "the last call", true)
		third.turn.End()
		shop.turn.End()
	})
}

func TestATurnIsNotForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := &Turns{}
		other := ask(t.Context(), turns, "shop", Work)
		defer other.turn.End()
		start := time.Now()
		slow := ask(t.Context(), turns, "payments", Work)
		second := ask(t.Context(), turns, "payments", Work)
		<-time.After(maxTurn)
		second.expect(t, "a call behind a slow one", true)
		if took := second.begun.Sub(start); took != maxTurn {
			t.Errorf("it began after %s, want %s", took, maxTurn)
		}
		slow.turn.End() // Its turn was over: this is no second end.
		third := ask(t.Context(), turns, "payments", Work)
		third.expect(t, "a third call, while the second is under way", false)
		second.turn.End()
		third.expect(t, "the third call after the second", true)
		third.turn.End()
	})
}

func TestACallThatLeavesTakesNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := &Turns{}
		other, first := ask(t.Context(), turns, "shop", Work), ask(t.Context(), turns, "payments", Work)
		defer other.turn.End()
		ctx, leave := context.WithCancel(t.Context())
		gone, next := ask(ctx, turns, "payments", Work), ask(t.Context(), turns, "payments", Work)
		leave()
		<-gone.answered
		if !errors.Is(gone.err, context.Canceled) {
			t.Errorf("a call that left got %v", gone.err)
		}
		first.turn.End()
		next.expect(t, "the call behind one that left", true)
		next.turn.End()
	})
}

func TestACallThatWaitsForItsTurnTooLongIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := &Turns{}
		defer func(other *asked) { other.turn.End() }(ask(t.Context(), turns, "shop", Work))
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
			call.turn.End()
		}
	})
}

func TestATenantIsAloneSoonAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := &Turns{}
		ask(t.Context(), turns, "shop", Work).turn.End()
		first := ask(t.Context(), turns, "payments", Work)
		second := ask(t.Context(), turns, "payments", Work)
		second.expect(t, "a second call right after the other tenant", false)
		<-time.After(2 * lingerFor)
		third := ask(t.Context(), turns, "payments", Work)
		third.expect(t, "a call a while after the other tenant", true)
		first.turn.End()
		third.turn.End()
		if len(turns.tenants) != 1 {
			t.Errorf("%d tenants are remembered", len(turns.tenants))
		}
		<-second.answered
		second.turn.End()
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
