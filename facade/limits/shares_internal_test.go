package limits

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
)

// The accounts of one namespace, one of another, and a user who is no service account.
var (
	worker  = callerNamed("system:serviceaccount:payments:worker")
	rival   = callerNamed("system:serviceaccount:payments:rival")
	third   = callerNamed("system:serviceaccount:payments:third")
	foreign = callerNamed("system:serviceaccount:billing:worker")
	person  = callerNamed("alice")
)

func callerNamed(name string) Caller { return CallerOf(&http.Request{}, name) }

// limited is a limiter with a clock of the test.
type limited struct {
	*Limiter

	t     *testing.T
	clock *clocktesting.FakeClock
}

func newLimited(t *testing.T, limits Limits) *limited {
	t.Helper()
	fake := clocktesting.NewFakeClock(time.Date(2024, 3, 15, 10, 30, 0, 0, time.UTC))
	limiter, err := New(limits, fake)
	if err != nil {
		t.Fatal(err)
	}
	return &limited{limiter, t, fake}
}

func (l *limited) permit(caller Caller) *Permit {
	l.t.Helper()
	permit, err := l.Admit(caller)
	if err != nil {
		l.t.Fatal(err)
	}
	return permit
}

// most returns how often something is let through, at most 100,000 times, and the limit that refuses it then.
func (l *limited) most(use func() error) (count int, limit string) {
	l.t.Helper()
	for count := range 100_000 {
		if err := use(); err != nil {
			refused, ok := errors.AsType[*Error](err)
			if !ok {
				l.t.Fatal(err)
			}
			return count, refused.Limit
		}
	}
	l.t.Fatal("nothing is refused")
	return 0, ""
}

func TestWhoACallerIs(t *testing.T) {
	of := func(name, address string) Caller { return CallerOf(&http.Request{RemoteAddr: address}, name) }
	const nobody = "system:anonymous"
	for title, test := range map[string]struct {
		first, second Caller
		same          bool
	}{
		"ports of one address":         {of(nobody, "192.0.2.1:1000"), of(nobody, "192.0.2.1:1001"), true},
		"two addresses":                {of(nobody, "192.0.2.1:1000"), of(nobody, "192.0.2.2:1000"), false},
		"a network of IPv6":            {of(nobody, "[2001:db8::1]:1"), of(nobody, "[2001:db8::ffff:1]:2"), true},
		"two networks of IPv6":         {of(nobody, "[2001:db8::1]:1"), of(nobody, "[2001:db8:0:1::1]:1"), false},
		"one address in two notations": {of(nobody, "192.0.2.1:1"), of(nobody, "[::ffff:192.0.2.1]:1"), true},
		"two such addresses":           {of(nobody, "[::ffff:192.0.2.1]:1"), of(nobody, "[::ffff:192.0.2.2]:1"), false},
		"no addresses":                 {of(nobody, "pipe"), of(nobody, "pipe"), true},
		"one user":                     {of("alice", "192.0.2.1:1"), of("alice", "192.0.2.2:2"), true},
		"two users":                    {of("alice", "192.0.2.1:1"), of("bob", "192.0.2.1:1"), false},
	} {
		if isSame := test.first == test.second; isSame != test.same {
			t.Errorf("%s are one caller: %t", title, isSame)
		}
	}
}

func TestNegativeLimitsAreRefused(t *testing.T) {
	for _, negative := range []Limits{{InFlight: -1}, {BodyBytes: -1}, {Shares: -1}, {RatePerCaller: -1}} {
		if _, err := New(negative, nil); err == nil {
			t.Errorf("%+v: no error", negative)
		}
	}
}

// uses are what callers do that has a limit, each with how often one caller may by default and in all.
var uses = map[string]struct {
	use                func(*Limiter, Caller) error
	ofCaller, ofWhole  int
	limit              string
	callersOfNamespace int
}{
	"a request": {func(l *Limiter, caller Caller) error {
		_, err := l.Admit(caller)
		return err
	}, DefaultMaxInFlight / DefaultShares, DefaultMaxInFlight, "in_flight", 2},
	"a body of a MiB": {func(l *Limiter, caller Caller) error {
		return l.Body(caller, strings.NewReader(""), 0).Take(1 << 20)
	}, 6, 128, "body_bytes", 2},
	"a list": {func(l *Limiter, caller Caller) error {
		_, err := (&Permit{limiter: l, caller: caller}).BeginList()
		return err
	}, 2, 40, "lists", 2},
	"a stream": {func(l *Limiter, caller Caller) error {
		_, err := (&Permit{limiter: l, caller: caller}).BeginStream()
		return err
	}, 50, 1000, "streams", 2},
}

// No tenant can use up what another one needs: a caller has a twentieth of each limit, and the accounts of a namespace a tenth.
func TestCallersAndNamespacesHaveShares(t *testing.T) {
	for name, test := range uses {
		t.Run(name, func(t *testing.T) {
			l := newLimited(t, Limits{})
			want := func(caller Caller, most int, limit string) {
				t.Helper()
				count, refusal := l.most(func() error { return test.use(l.Limiter, caller) })
				if count != most || refusal != test.limit+limit {
					t.Errorf("%s: %d by %s, want %d by %s%s", caller.user, count, refusal, most, test.limit, limit)
				}
			}
			want(worker, test.ofCaller, "_per_caller")
			want(rival, test.ofCaller, "_per_caller")
			if test.limit != "body_bytes" { // A share is no whole number of MiB.
				want(third, 0, "_per_namespace")
			}
			want(foreign, test.ofCaller, "_per_caller")
			want(person, test.ofCaller, "_per_caller")
			used := 4 * test.ofCaller
			for user := 0; used < test.ofWhole; user++ {
				more, _ := l.most(func() error { return test.use(l.Limiter, callerNamed(fmt.Sprint("user ", user))) })
				used += more
			}
			want(callerNamed("late"), 0, "")
		})
	}
}

func TestWithoutSharesOneCallerMayUseTheWhole(t *testing.T) {
	for name, test := range uses {
		t.Run(name, func(t *testing.T) {
			l := newLimited(t, Limits{Shares: 1})
			if count, limit := l.most(func() error { return test.use(l.Limiter, worker) }); count != test.ofWhole || limit != test.limit {
				t.Errorf("%d by %s", count, limit)
			}
		})
	}
}

func TestAShareOfBodiesHasRoomForARequest(t *testing.T) {
	l := newLimited(t, Limits{BodyBytes: 5 << 20})
	first := l.Body(worker, strings.NewReader(strings.Repeat("x", 1<<20)), 1<<20)
	if _, err := first.ReadAll(-1); err != nil {
		t.Fatal(err)
	}
	if err := first.Take(1<<20 + 1); err == nil {
		t.Error("a caller has more than 2 MiB")
	}
	first.Forget()
	if err := first.Take(1); err == nil {
		t.Error("the call is over, and takes room that is never given back")
	}
	if err := l.Body(worker, strings.NewReader(""), 0).Take(2 << 20); err != nil {
		t.Errorf("there is room again: %v", err)
	}
}

// A caller whose other calls use up its share, or that of its namespace or of all callers, must not lose the
// locks that it holds.
func TestATenthOfTheCallsInFlightIsKeptForRenewalsAndReleases(t *testing.T) {
	l := newLimited(t, Limits{InFlight: 400})
	var work []*Permit
	begin := func(caller Caller, cost Cost, most int, limit string) {
		t.Helper()
		count, refusal := l.most(func() error {
			permit, err := l.Admit(caller)
			if err != nil {
				return err
			}
			if err = permit.Begin(t.Context(), cost, 0); err != nil {
				permit.Release()
			} else if cost == Work {
				work = append(work, permit)
			}
			return err
		})
		if count != most || refusal != limit {
			t.Errorf("%s: %d by %s, want %d by %s", caller.user, count, refusal, most, limit)
		}
	}
	begin(worker, Work, 18, "in_flight_per_caller")
	for range 19 { // Requests that are sent slowly, or whose refusal nobody takes.
		l.permit(worker)
	}
	begin(worker, Upkeep, 2, "in_flight_per_caller")
	work[0].Release()
	begin(worker, Upkeep, 1, "in_flight_per_caller")
	begin(rival, Work, 18, "in_flight_per_caller")
	begin(third, Work, 1, "in_flight_per_namespace") // Another one has made room.
	begin(third, Upkeep, 1, "in_flight_per_namespace")
	for user := range 18 {
		begin(callerNamed(fmt.Sprint("user ", user)), Work, 18, "in_flight_per_caller")
	}
	begin(person, Work, 0, "in_flight")
	begin(person, Upkeep, 20, "in_flight_per_caller")
	if l.clock.Step(time.Second); l.Saturated() == 0 {
		t.Error("the limit is not saturated, though all but renewals and releases are refused")
	}
}

// Callers and namespaces come and go, and must not be remembered for ever.
func TestNothingIsKeptOfCallersWithoutCalls(t *testing.T) {
	l := newLimited(t, Limits{})
	permit := l.permit(worker)
	endList, err := permit.BeginList()
	if err != nil {
		t.Fatal(err)
	}
	endList()
	if err := permit.Begin(t.Context(), Work, 0); err != nil {
		t.Fatal(err)
	}
	permit.Hold()
	permit.Release()
	if l.Counts().Running != 1 {
		t.Error("what outlives the request does not count")
	}
	permit.Release()
	for _, each := range []*pool{l.arriving, l.inFlight, l.work, l.lists} {
		if len(each.callers)+len(each.namespaces)+each.used != 0 {
			t.Errorf("%+v and %+v are left", each.callers, each.namespaces)
		}
	}
}

func TestADrainEndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimited(t, Limits{})
		permit := l.permit(worker)
		forever := func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		ended := make(chan error, 1)
		go func() { ended <- permit.Wait(t.Context(), forever) }()
		synctest.Wait()
		if got := l.Counts(); got != (Counts{Waiting: 1}) {
			t.Errorf("%+v are counted", got)
		}
		l.Drain()
		if err := <-ended; !errors.Is(err, ErrDraining) {
			t.Errorf("the wait ended with %v", err)
		}
		if got := l.Counts(); got != (Counts{Running: 1}) {
			t.Errorf("%+v are counted after the wait", got)
		}
		if err := permit.Wait(t.Context(), forever); !errors.Is(err, ErrDraining) {
			t.Errorf("a later wait ended with %v", err)
		}
	})
}

func TestTheUsageOfEachWholeIsTold(t *testing.T) {
	l := newLimited(t, Limits{InFlight: 8, BodyBytes: 4 << 20})
	permit := l.permit(person)
	for range 2 {
		l.permit(person)
		if _, err := permit.BeginList(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := permit.BeginStream(); err != nil {
		t.Fatal(err)
	}
	if err := l.Body(person, strings.NewReader(""), 0).Take(1 << 20); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"in_flight": 0.375, "body_bytes": 0.25, "lists": 0.05, "streams": 0.001}
	got := map[string]float64{}
	for _, whole := range Wholes {
		got[whole.Name] = l.Usage(whole)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
}
