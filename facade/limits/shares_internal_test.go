package limits

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		_, err := l.Admit(caller, Work)
		return err
	}
	wait := func(l *Limiter, caller Caller) error {
		permit, err := l.Admit(caller, Work)
		if err != nil {
			return err
		}
		return permit.beginWait()
	}
	read := func(l *Limiter, caller Caller) error {
		_, err := l.Body(caller, strings.NewReader("123"), 10).ReadAll(-1)
		return err
	}
	begin := func(what func(*Permit) (func(), error)) func(*Limiter, Caller) error {
		return func(l *Limiter, caller Caller) error {
			permit, err := l.Admit(caller, Work)
			if err != nil {
				return err
			}
			_, err = what(permit)
			return err
		}
	}
	cases := map[string]struct {
		limits Limits
		use    func(*Limiter, Caller) error
		want   error
	}{
		"running": {Limits{RunningPerNamespace: 1}, run, ErrNamespaceRunning},
		"waiting": {Limits{WaitingPerNamespace: 1}, wait, ErrNamespaceWaiting},
		"bodies":  {Limits{BodyBytesPerNamespace: 5}, read, ErrNamespaceBodies},
		"lists":   {Limits{ListsPerNamespace: 1}, begin((*Permit).BeginList), ErrNamespaceLists},
		"streams": {Limits{StreamsPerNamespace: 1}, begin((*Permit).BeginStream), ErrNamespaceStreams},
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
	l := newLimiter(t, Limits{Waiting: 50, Running: 30, BodyBytes: 100 << 20, Lists: 60, Streams: 70})
	want := Limits{
		Waiting: 50, WaitingPerCaller: 5, WaitingPerNamespace: 5, Running: 30, RunningPerCaller: 3, RunningPerNamespace: 3,
		BodyBytes: 100 << 20, BodyBytesPerCaller: 10 << 20, BodyBytesPerNamespace: 10 << 20,
		Lists: 60, ListsPerCaller: 2, ListsPerNamespace: 6, Streams: 70, StreamsPerCaller: 7, StreamsPerNamespace: 7,
	}
	if l.Limits() != want {
		t.Errorf("got %+v, want %+v", l.Limits(), want)
	}
	for count := range 4 {
		if _, err := l.Admit(worker, Work); (err == nil) != (count < 3) {
			t.Errorf("call %d: %v", count, err)
		}
	}
	if _, err := l.Admit(foreign, Work); err != nil {
		t.Errorf("another caller: %v", err)
	}
}

func TestWithoutSharesOneCallerMayUseTheWhole(t *testing.T) {
	l := newLimiter(t, Limits{Running: 20, RunningPerCaller: 1, RatePerCaller: 1, RatePerNamespace: 1, BodyBytes: 8}.Unshared())
	for range 18 {
		permit, err := l.Admit(worker, Work)
		if err != nil {
			t.Fatal(err)
		}
		if err := permit.Spend(Work); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Admit(worker, Work); !errors.Is(err, ErrRunning) {
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
	permit, err := l.Admit(worker, Work)
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

// Lists are served in the order in which they came, so many of one caller would delay those of all others.
func TestACallerHasFewListsUnderWay(t *testing.T) {
	l := newLimiter(t, Limits{})
	permit := func(caller Caller) *Permit {
		t.Helper()
		permit, err := l.Admit(caller, Work)
		if err != nil {
			t.Fatal(err)
		}
		return permit
	}
	var ends []func()
	for range 2 {
		end, err := permit(worker).BeginList()
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	if _, err := permit(worker).BeginList(); !errors.Is(err, ErrCallerLists) {
		t.Errorf("a third list: %v", err)
	}
	for range 2 {
		if _, err := permit(rival).BeginList(); err != nil {
			t.Errorf("another account: %v", err)
		}
	}
	another := callerNamed("system:serviceaccount:payments:another")
	if _, err := permit(another).BeginList(); !errors.Is(err, ErrNamespaceLists) {
		t.Errorf("a fifth list of the namespace: %v", err)
	}
	if _, err := permit(foreign).BeginList(); err != nil {
		t.Errorf("an account of another namespace: %v", err)
	}
	ends[0]()
	if _, err := permit(worker).BeginList(); err != nil {
		t.Errorf("there is room again: %v", err)
	}
	var none *Permit
	if _, err := none.BeginList(); err != nil {
		t.Errorf("without limits: %v", err)
	}
}

// A caller whose other calls use up its share, or that of its namespace or of all callers, must not lose the
// locks that it holds.
func TestATenthOfTheRunningCallsIsKeptForRenewalsAndReleases(t *testing.T) {
	for name, test := range map[string]struct {
		limits  Limits
		refusal error
	}{
		"of the caller":    {Limits{RunningPerCaller: 20}, ErrCallerRunning},
		"of the namespace": {Limits{RunningPerNamespace: 20}, ErrNamespaceRunning},
		"of all callers":   {Limits{Running: 20}.Unshared(), ErrRunning},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, test.limits)
			admit := func(cost Cost, most int) (permits []*Permit) {
				t.Helper()
				for range most {
					permit, err := l.Admit(worker, cost)
					if err != nil {
						t.Fatalf("call %d: %v", len(permits), err)
					}
					permits = append(permits, permit)
				}
				if _, err := l.Admit(worker, cost); !errors.Is(err, test.refusal) {
					t.Errorf("beyond %d calls: %v", most, err)
				}
				return permits
			}
			work := admit(Work, 18)
			admit(Upkeep, 2)
			work[0].Release()
			upkeep := admit(Upkeep, 1)
			upkeep[0].Release()
			admit(Work, 1)
			if counts := l.Counts(); counts.Running != 20 {
				t.Errorf("%d calls run", counts.Running)
			}
		})
	}
}

// Calls that have got the lock that they waited for run beyond the limits.
func TestCallsThatHaveWaitedLeaveTheReserve(t *testing.T) {
	l := newLimiter(t, Limits{RunningPerCaller: 10})
	var waited []*Permit
	for range 20 {
		permit, err := l.Admit(worker, Work)
		if err != nil {
			t.Fatal(err)
		}
		if err := permit.beginWait(); err != nil {
			t.Fatal(err)
		}
		waited = append(waited, permit)
	}
	for _, each := range waited {
		each.endWait()
	}
	renewal, err := l.Admit(worker, Upkeep)
	if err != nil {
		t.Fatal(err)
	}
	renewal.Release()
	for _, each := range waited {
		each.Release()
	}
	if len(l.callers) != 0 || len(l.namespaces) != 0 {
		t.Errorf("still counted: %+v", l.callers)
	}
}

func TestTheUsageOfEachWholeIsTold(t *testing.T) {
	l := newLimiter(t, Limits{Running: 8, Waiting: 4, BodyBytes: 4 << 20, Lists: 20, Streams: 20})
	for range 2 {
		permit, err := l.Admit(person, Work)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := permit.BeginList(); err != nil {
			t.Fatal(err)
		}
		if _, err := permit.BeginStream(); err != nil {
			t.Fatal(err)
		}
	}
	waiting, err := l.Admit(person, Work)
	if err != nil {
		t.Fatal(err)
	}
	if err := waiting.beginWait(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Body(person, strings.NewReader(strings.Repeat("x", 1<<20)), 1<<20).ReadAll(1 << 20); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"running": 0.25, "waiting": 0.25, "body_bytes": 0.25, "lists": 0.1, "streams": 0.1}
	got := map[string]float64{}
	for _, whole := range Wholes {
		got[whole.Name] = l.Usage(whole)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
}
