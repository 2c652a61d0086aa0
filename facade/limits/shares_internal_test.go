package limits

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"
)

// The accounts of one namespace, one of another, and a user who is no service account.
var (
	worker  = callerNamed("system:serviceaccount:payments:worker")
	rival   = callerNamed("system:serviceaccount:payments:rival")
	foreign = callerNamed("system:serviceaccount:billing:worker")
	person  = callerNamed("alice")
)

func callerNamed(name string) Caller { return CallerOf(&http.Request{}, name) }

func newLimiter(t *testing.T, limits Limits) *Limiter {
	t.Helper()
	limiter, err := New(limits, nil)
	if err != nil {
		t.Fatal(err)
	}
	return limiter
}

func TestServiceAccountsOfANamespaceShareItsPart(t *testing.T) {
	run := func(l *Limiter, caller Caller) error {
		_, err := l.Admit(caller)
		return err
	}
	wait := func(l *Limiter, caller Caller) error {
		permit, err := l.Admit(caller)
		if err != nil {
			return err
		}
		return permit.beginWait()
	}
	read := func(l *Limiter, caller Caller) error {
		_, err := l.Body(caller, strings.NewReader("123"), 10).ReadAll(-1)
		return err
	}
	cases := map[string]struct {
		limits Limits
		use    func(*Limiter, Caller) error
		want   error
	}{
		"running": {Limits{RunningPerNamespace: 1}, run, ErrNamespaceRunning},
		"waiting": {Limits{WaitingPerNamespace: 1}, wait, ErrNamespaceWaiting},
		"bodies":  {Limits{BodyBytesPerNamespace: 5}, read, ErrNamespaceBodies},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, test.limits)
			if err := test.use(l, worker); err != nil {
				t.Fatal(err)
			}
			for title, each := range map[string]struct {
				caller Caller
				want   error
			}{
				"another account of the namespace": {rival, test.want},
				"an account of another namespace":  {foreign, nil},
				"a user without a namespace":       {person, nil},
			} {
				if err := test.use(l, each.caller); !errors.Is(err, each.want) {
					t.Errorf("%s: got %v, want %v", title, err, each.want)
				}
			}
		})
	}
}

func TestOneCallerHasATenthByDefault(t *testing.T) {
	l := newLimiter(t, Limits{Waiting: 50, Running: 30, BodyBytes: 100 << 20})
	want := Limits{
		Waiting: 50, WaitingPerCaller: 5, WaitingPerNamespace: 5, Running: 30, RunningPerCaller: 3, RunningPerNamespace: 3,
		BodyBytes: 100 << 20, BodyBytesPerCaller: 10 << 20, BodyBytesPerNamespace: 10 << 20,
	}
	if l.Limits() != want {
		t.Errorf("got %+v, want %+v", l.Limits(), want)
	}
	for count := range 4 {
		if _, err := l.Admit(worker); (err == nil) != (count < 3) {
			t.Errorf("call %d: %v", count, err)
		}
	}
	if _, err := l.Admit(foreign); err != nil {
		t.Errorf("another caller: %v", err)
	}
}

func TestWithoutSharesOneCallerMayUseTheWhole(t *testing.T) {
	l := newLimiter(t, Limits{Running: 20, RunningPerCaller: 1, RatePerCaller: 1, RatePerNamespace: 1, BodyBytes: 8}.Unshared())
	for range 20 {
		permit, err := l.Admit(worker)
		if err != nil {
			t.Fatal(err)
		}
		if err := permit.Spend(Work); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Admit(worker); !errors.Is(err, ErrRunning) {
		t.Errorf("beyond the whole: %v", err)
	}
	if _, err := l.Body(worker, strings.NewReader("12345678"), 8).ReadAll(-1); err != nil {
		t.Error(err)
	}
	if ShareOf(9) != math.MaxInt {
		t.Error("a whole of less than ten has shares")
	}
}

func TestBodiesOfOneCallerAreBounded(t *testing.T) {
	l := newLimiter(t, Limits{BodyBytesPerCaller: 5})
	first := l.Body(worker, strings.NewReader("1234"), 10)
	if _, err := first.ReadAll(-1); err != nil {
		t.Fatal(err)
	}
	if err := first.Take(2); !errors.Is(err, ErrCallerBodies) {
		t.Errorf("room for an answer: %v", err)
	}
	if _, err := l.Body(rival, strings.NewReader("1234"), 10).ReadAll(-1); err != nil {
		t.Errorf("another caller: %v", err)
	}
	first.Forget()
	if err := first.Take(1); err == nil {
		t.Error("the call is over, and takes room that is never given back")
	}
	if _, err := l.Body(worker, strings.NewReader("1234"), 10).ReadAll(-1); err != nil {
		t.Errorf("there is room again: %v", err)
	}
}

func TestNamespacesWithoutCallsAreForgotten(t *testing.T) {
	l := newLimiter(t, Limits{})
	permit, err := l.Admit(worker)
	if err != nil {
		t.Fatal(err)
	}
	if err := permit.Wait(t.Context(), func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	permit.Release()
	if len(l.namespaces) != 0 || len(l.callers) != 0 {
		t.Errorf("%d namespaces and %d callers are left", len(l.namespaces), len(l.callers))
	}
}
