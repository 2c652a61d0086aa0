package forrst_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"

	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/testfacade"
)

const (
	anAddress      = "192.0.2.1:1000"
	anotherPort    = "192.0.2.1:1001"
	anotherAddress = "192.0.2.2:1000"
)

// crowd is a façade whose calls last until they are told to end.
type crowd struct {
	*fixture

	// begun gets a value when a call waits or runs.
	begun chan struct{}
	// finish ends the functions that run.
	finish  chan struct{}
	answers chan answer
}

const lingering = "linger"

func newCrowd(t *testing.T, limits limits.Limits, holder func(*http.Request) string) *crowd {
	t.Helper()
	return newCrowdWith(t, func(config *testfacade.Settings) { config.Server.Limits, config.Access = limits, identified(holder) })
}

func newCrowdWith(t *testing.T, configure func(*testfacade.Settings)) *crowd {
	t.Helper()
	c := &crowd{begun: make(chan struct{}), finish: make(chan struct{}), answers: make(chan answer)}
	linger := function(lingering, func(context.Context) (any, error) {
		c.begun <- struct{}{}
		<-c.finish
		return nil, nil
	})
	c.fixture = newFixtureWith(t, configure, linger, function("panic", func(context.Context) (any, error) { panic("x") }))
	c.joined = func(context.Context) error {
		c.begun <- struct{}{}
		return nil
	}
	return c
}

func (c *crowd) postFrom(address, body string) answer {
	request := httptest.NewRequestWithContext(c.t.Context(), http.MethodPost, forrst.Path, strings.NewReader(body))
	request.RemoteAddr = address
	request.Header.Set("X-User", address)
	return c.serve(request)
}

// begin makes a call and returns when it waits or runs.
func (c *crowd) begin(address, body string) {
	go func() { c.answers <- c.postFrom(address, body) }()
	<-c.begun
}

func (c *crowd) wantRefusal(got answer, status int, problem string) {
	c.t.Helper()
	c.wantProblems(got, status, problem)
	want := `{"retry_after":{"value":1,"unit":"second"}}`
	if problem == "UNAVAILABLE" {
		want = `{"retry_after":{"value":1,"unit":"second"},"nothing_done":true}`
	}
	if details := string(got.Errors[0].Details); details != want {
		c.t.Errorf("details %s", details)
	}
	if got.header.Get("Retry-After") != "1" {
		c.t.Errorf("Retry-After %q", got.header.Get("Retry-After"))
	}
}

var (
	waiting = envelopeWith(wire.Acquire, arguments(`"key":"held","block":{"value":60}`), "")
	running = envelopeWith(lingering, "", "")
)

// oneEach lets each caller have one call in flight.
var oneEach = limits.Limits{InFlight: limits.DefaultShares}

var limitsOfCalls = map[string]struct {
	limits  limits.Limits
	address string
	status  int
	problem string
}{
	"of one caller": {oneEach, anotherPort, 429, "RATE_LIMITED"},
	"of all":        {limits.Limits{InFlight: 1}, anotherAddress, 503, "UNAVAILABLE"},
}

// A call counts while it waits, and goes on when it has the lock.
func TestLimitsOfWaitingCalls(t *testing.T) {
	for name, test := range limitsOfCalls {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, test.limits, nil)
			c.hold("held", "other", 1e12)
			c.begin(anAddress, waiting)
			c.locks.Calls()
			c.wantRefusal(c.postFrom(test.address, waiting), test.status, test.problem)
			inLock := c.postFrom(test.address, envelopeWith(ping, "", locked(`{"key":"free",`+ttl+`,"block":{"value":1}}`)))
			c.wantRefusal(inLock, test.status, test.problem)
			if len(c.locks.Calls()) > 0 {
				t.Error("a refused call asked for a lock")
			}
			if err := c.locks.Release(t.Context(), namespace, "lock:held", lock.Proof{Owner: "other"}); err != nil {
				t.Fatal(err)
			}
			if got := <-c.answers; got.status != 200 {
				t.Errorf("the call that waited: %s", got.body)
			}
			c.wantHeld("lock:held")
			c.release("held", generated)
			if got := c.postFrom(test.address, waiting); got.status != 200 {
				t.Errorf("there is room again: %s", got.body)
			}
		})
	}
}

func (f *fixture) release(key, owner string) {
	f.t.Helper()
	got := f.post(envelopeWith("forrst.locks.release", arguments(`"key":"lock:`+key+`","owner":"`+owner+`"`), ""))
	if got.status != 200 {
		f.t.Fatal(got.body)
	}
}

func TestLimitsOfRunningCalls(t *testing.T) {
	for name, test := range limitsOfCalls {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, test.limits, nil)
			c.begin(anAddress, running)
			c.wantRefusal(c.postFrom(test.address, envelopeWith(lingering, "", locked(`{"key":"k",`+ttl+`}`))), test.status, test.problem)
			if len(c.locks.Calls()) > 0 {
				t.Error("a refused call asked for a lock")
			}
			c.finish <- struct{}{}
			if got := <-c.answers; got.status != 200 {
				t.Error(got.body)
			}
			for _, body := range []string{envelopeWith("panic", "", ""), envelopeWith(ping, "", ""), envelopeWith("missing", "", ""), envelopeWith(ping, "", "")} {
				if got := c.postFrom(test.address, body); got.status == test.status {
					t.Errorf("there is room again: %s", got.body)
				}
			}
		})
	}
}

func TestWhoACallerIs(t *testing.T) {
	user := func(r *http.Request) string { return strings.SplitN(r.Header.Get("X-User"), ":", 2)[0] }
	anonymous := func(*http.Request) string { return access.Anonymous }
	cases := map[string]struct {
		holder        func(*http.Request) string
		first, second string
		same          bool
	}{
		"ports of one address":               {nil, anAddress, anotherPort, true},
		"two addresses":                      {nil, anAddress, anotherAddress, false},
		"a network of IPv6":                  {nil, "[2001:db8::1]:1", "[2001:db8::ffff:1]:2", true},
		"two networks of IPv6":               {nil, "[2001:db8::1]:1", "[2001:db8:0:1::1]:1", false},
		"one address in two notations":       {nil, "192.0.2.1:1", "[::ffff:192.0.2.1]:1", true},
		"two such addresses":                 {nil, "[::ffff:192.0.2.1]:1", "[::ffff:192.0.2.2]:1", false},
		"no addresses":                       {nil, "pipe", "pipe", true},
		"one user":                           {user, "alice:1", "alice:2", true},
		"two users":                          {user, "alice:1", "bob:1", false},
		"anonymous callers on two addresses": {anonymous, anAddress, anotherAddress, false},
		"anonymous callers on one address":   {anonymous, anAddress, anotherPort, true},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, oneEach, test.holder)
			c.begin(test.first, running)
			want := 200
			if test.same {
				want = 429
			}
			if got := c.postFrom(test.second, envelopeWith(ping, "", "")); got.status != want {
				t.Errorf("status %d, want %d", got.status, want)
			}
			c.finish <- struct{}{}
			<-c.answers
		})
	}
}

func TestRefusalsTellWhetherToRetry(t *testing.T) {
	const most = 9 // The tenth is kept for renewals and releases.
	c := newCrowd(t, limits.Limits{InFlight: most + 1, Shares: 1}, nil)
	for range most {
		c.begin(anAddress, running)
	}
	got := c.postFrom(anAddress, envelopeWith(ping, "", `{"urn":"urn:cline:forrst:ext:retry"}`))
	want := `{"allowed":true,"strategy":"exponential","after":{"value":1,"unit":"second"},"max_attempts":5}`
	if len(got.Extensions) != 1 || cmp.Diff(want, string(got.Extensions[0].Data)) != "" {
		t.Errorf("extensions %s", got.body)
	}
	for range most {
		c.finish <- struct{}{}
		<-c.answers
	}
}

func TestNegativeLimitsAreRefused(t *testing.T) {
	for _, negative := range []limits.Limits{{InFlight: -1}, {BodyBytes: -1}, {Shares: -1}, {RatePerCaller: -1}} {
		f := newFixture(t)
		if _, err := testfacade.New(testfacade.Settings{Locks: f.locks, Namespace: namespace, Server: server.Options{Limits: negative}}); err == nil {
			t.Errorf("%+v: no error", negative)
		}
	}
}

// What a caller asks of the API server has a rate. Its renewals and releases have one of their own.
func TestACallerAtItsRateIsToldWhenToTryAgain(t *testing.T) {
	acquire := func(key string) string {
		return envelopeWith(wire.Acquire, arguments(`"key":"`+key+`","owner":"o"`), "")
	}
	for title, refused := range map[string]string{
		"acquire": acquire("c"), "status": envelopeWith(wire.Status, arguments(`"key":"a"`), ""),
		"list": envelopeWith(wire.List, "", ""), "force-release": envelopeWith(wire.ForceRelease, arguments(`"key":"a"`), ""),
		"the extension":          envelopeWith(ping, "", locked(`{"key":"d","scope":"global",`+ttl+`}`)),
		"a wait for half a turn": envelopeWith(wire.Acquire, arguments(`"key":"c","block":{"value":500,"unit":"millisecond"}`), ""),
		"an unknown function":    envelopeWith("unknown", "", ""),
		"no call":                `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"a-1"}`,
	} {
		t.Run(title, func(t *testing.T) {
			f := newFixtureWith(t, func(config *testfacade.Settings) {
				config.Server.Limits, config.Server.Clock = limits.Limits{RatePerCaller: 1}, config.Clock
			})
			c := &crowd{fixture: f}
			want := func(title, address, body string, status int) {
				t.Helper()
				if got := c.postFrom(address, body); got.status != status {
					t.Errorf("%s: status %d, want %d: %s", title, got.status, status, got.body)
				}
			}
			for _, key := range []string{"a", "b"} {
				want("at first", anAddress, acquire(key), 200)
			}
			f.locks.Calls()
			c.wantRefusal(c.postFrom(anAddress, refused), 429, "RATE_LIMITED")
			if calls := f.locks.Calls(); len(calls) > 0 {
				t.Errorf("a refused call asked for %+v", calls)
			}
			want("a ping", anAddress, envelopeWith(ping, "", ""), 200)
			want("a renewal", anAddress, envelopeWith(wire.Renew, arguments(`"key":"a","owner":"o"`), ""), 200)
			want("a release", anAddress, envelopeWith(wire.Release, arguments(`"key":"a","owner":"o"`), ""), 200)
			want("another caller", anotherAddress, acquire("e"), 200)
			f.clock.Step(time.Second)
			want("a second later", anAddress, acquire("c"), 200)
		})
	}
}

// readBody counts when it was read to its end.
type readBody struct {
	io.Reader

	ends *atomic.Int32
}

func (b readBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		b.ends.Add(1)
	}
	return n, err
}

// The body names the function, so it is read before the call is held back. What the bodies take meanwhile is bounded.
func TestACallerThatGoesOnIsAnsweredLateAndItsBodiesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, begun, refused = 2000, 4, 10
		reviewed := &fakeAccess{who: func(*http.Request) (user.Info, error) { return &user.DefaultInfo{Name: "alice"}, nil }}
		f := newFixtureWith(t, func(config *testfacade.Settings) {
			config.Access, config.Server.Clock = reviewed, config.Clock
			config.Server.Limits = limits.Limits{RatePerCaller: 1, BodyBytes: (begun+refused)*size + size/2}
		})
		var ends atomic.Int32
		call := func(key string) answer {
			body := envelopeWith(wire.Acquire, arguments(`"key":"`+key+`"`), "")
			body += strings.Repeat(" ", size-len(body))
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, forrst.Path, readBody{strings.NewReader(body), &ends})
			request.Header.Set(wire.NamespaceHeader, namespace)
			return f.serve(request)
		}
		for index, want := range []int{200, 429} { // The review of the right is another one.
			if got := call(fmt.Sprint("first-", index)); got.status != want {
				t.Fatalf("status %d, want %d: %s", got.status, want, got.body)
			}
		}
		f.locks.Calls()
		reviewed.asked = nil
		ends.Store(0)
		answers, late := make(chan answer, begun), make(chan answer, refused+1)
		for key := range begun { // Each has its turn within 5 s, a second after the other.
			go func() { answers <- call(fmt.Sprint("begun-", key)) }()
		}
		synctest.Wait()
		for key := range refused {
			go func() { late <- call(fmt.Sprint("late-", key)) }()
		}
		synctest.Wait()
		if got := ends.Load(); got != begun+refused {
			t.Errorf("%d bodies were read", got)
		}
		if taken := f.Limiter().BodyBytes(); taken != (begun+refused)*size {
			t.Errorf("%d bytes are counted while the calls are held back", taken)
		}
		go func() { late <- call("one-more") }() // There is no room for its body, and it is held back all the same.
		synctest.Wait()
		if taken := f.Limiter().BodyBytes(); taken != (begun+refused)*size {
			t.Errorf("%d bytes are counted beside a body without room", taken)
		}
		for second := range 5 {
			synctest.Wait()
			if got := len(answers) + len(reviewed.asked); got != 2*min(second, begun) || len(late) > 0 {
				t.Fatalf("after %d s %d were begun, %d reviewed and %d refused", second, len(answers), len(reviewed.asked), len(late))
			}
			f.clock.Step(time.Second)
		}
		for range begun {
			if got := <-answers; got.status != 200 {
				t.Errorf("begun in turn: %s", got.body)
			}
		}
		for range cap(late) {
			f.wantProblems(<-late, 429, "RATE_LIMITED")
		}
		if asked := len(f.requests()); asked != begun || len(reviewed.asked) != begun {
			t.Errorf("%d requests for locks and %d reviews, want those of the calls that were begun", asked, len(reviewed.asked))
		}
		if left := f.Limiter().BodyBytes(); left != 0 {
			t.Errorf("%d bytes are still counted", left)
		}
	})
}

// A call that waits for a lock waits for its turn as well, and costs nothing more.
func TestACallThatWaitsWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixtureWith(t, func(config *testfacade.Settings) {
			config.Server.Limits, config.Server.Clock = limits.Limits{RatePerCaller: 1}, config.Clock
		})
		for range 2 {
			f.post(envelopeWith(wire.List, "", ""))
		}
		f.locks.Calls()
		answers := make(chan answer)
		go func() { answers <- f.post(envelopeWith(wire.Acquire, arguments(`"key":"k","block":{"value":10}`), "")) }()
		synctest.Wait()
		if calls := f.locks.Calls(); len(calls) > 0 {
			t.Fatalf("before its turn it asked for %+v", calls)
		}
		f.clock.Step(time.Second)
		if got := <-answers; got.status != 200 {
			t.Error(got.body)
		}
		if requests := f.requests(); len(requests) != 1 || requests[0].Wait != 9*time.Second {
			t.Errorf("it asked for %+v, want the rest of the wait", requests)
		}
	})
}
