package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testfacade"
)

const namespace = "default"

// TestMain has the tests draw the same numbers in each run.
func TestMain(m *testing.M) {
	source, mu := rand.New(rand.NewPCG(1, 0)), sync.Mutex{}
	client.DrawFrom(func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return source.Float64()
	})
	goleak.VerifyTestMain(m)
}

// memory keeps the locks behind the façade, and records the calls for them.
type memory struct {
	*locktest.Backend

	clock *clocktesting.FakeClock
	// waiting gets a value for each acquisition that begins to wait.
	waiting chan struct{}
}

func newMemory() *memory {
	fake := clocktesting.NewFakeClock(time.Date(2024, 3, 15, 10, 30, 0, 0, time.UTC))
	waiting := make(chan struct{}, 100)
	hooks := locktest.Hooks{Waiting: func(context.Context, locktest.Call) error {
		waiting <- struct{}{}
		return nil
	}}
	return &memory{Backend: locktest.New(locktest.WithClock(fake), locktest.WithRecord(), locktest.WithHooks(hooks)), clock: fake, waiting: waiting}
}

// fail makes all calls return an error.
func (m *memory) fail(err error) {
	m.SetHooks(locktest.Hooks{Before: func(context.Context, locktest.Call) error { return err }})
}

// letWaitsEnd makes waits take their time, in a bubble of synctest, and end without the lock.
func (m *memory) letWaitsEnd() {
	m.SetHooks(locktest.Hooks{Waiting: func(_ context.Context, call locktest.Call) error {
		<-time.After(call.Request.Wait)
		return lock.ErrTimeout
	}})
}

// requests returns the acquisitions since the last call of Calls or requests.
func (m *memory) requests() []lock.Request {
	var requests []lock.Request
	for _, call := range m.Calls() {
		if call.Verb == locktest.Acquire {
			requests = append(requests, call.Request)
		}
	}
	return requests
}

// waits returns the waits of those acquisitions.
func (m *memory) waits() []time.Duration {
	var waits []time.Duration
	for _, request := range m.requests() {
		waits = append(waits, request.Wait)
	}
	return waits
}

// fault stands between client and façade. Carry has the façade carry out the request.
type fault func(carry func() (*http.Response, error)) (*http.Response, error)

// fixture is a client of a façade on locks in memory.
type fixture struct {
	*client.Client

	t     *testing.T
	locks *memory

	mu sync.Mutex
	// faults befall the next requests, one each; nil is none. If only is set, they befall those for that function.
	faults []fault
	only   string
	// calls are the functions that were asked for.
	calls []string
	// headers are those of the last request.
	headers http.Header
	// isDetached keeps the façade from noticing that the caller has gone.
	isDetached atomic.Bool
	// isSilent has no request answered.
	isSilent bool
	// fixed, if set, is the result of every request.
	fixed string
}

var errReset = errors.New("connection reset by peer")

func newFixture(t *testing.T, options ...client.Option) *fixture {
	t.Helper()
	return newFixtureWith(t, func(*testfacade.Settings) {}, options...)
}

func newFixtureWith(t *testing.T, configure func(*testfacade.Settings), options ...client.Option) *fixture {
	t.Helper()
	f := &fixture{t: t, locks: newMemory()}
	handler := newHandler(t, f.locks, configure)
	transport := transportFunc(func(request *http.Request) (*http.Response, error) { return f.roundTrip(handler, request) })
	options = append([]client.Option{client.WithHTTPClient(&http.Client{Transport: transport})}, options...)
	var err error
	if f.Client, err = client.New("http://facade.test", options...); err != nil {
		t.Fatal(err)
	}
	return f
}

func newHandler(tb testing.TB, locks *memory, configure func(*testfacade.Settings)) http.Handler {
	tb.Helper()
	config := testfacade.Settings{Locks: locks, Namespace: namespace, Clock: locks.clock}
	configure(&config)
	handler, err := testfacade.New(config)
	if err != nil {
		tb.Fatal(err)
	}
	return handler
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func (f *fixture) roundTrip(handler http.Handler, request *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	_, name, _ := strings.Cut(string(body), `"function":"`)
	name, _, _ = strings.Cut(name, `"`)
	f.mu.Lock()
	name = name[strings.LastIndex(name, ":")+1:]
	f.calls = append(f.calls, name)
	f.headers = request.Header
	var next fault
	if len(f.faults) > 0 && (f.only == "" || f.only == name) {
		next, f.faults = f.faults[0], f.faults[1:]
	}
	f.mu.Unlock()
	if f.isSilent {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	if f.fixed != "" {
		_, id, _ := strings.Cut(string(body), `"id":"`)
		id, _, _ = strings.Cut(id, `"`)
		text := `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"` + id + `","result":` + f.fixed + `}`
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text))}, nil
	}
	carry := func() (*http.Response, error) { return f.carry(handler, request, body) }
	if next == nil {
		return carry()
	}
	return next(carry)
}

// carry has the façade carry out a request.
func (f *fixture) carry(handler http.Handler, request *http.Request, body []byte) (*http.Response, error) {
	ctx := request.Context()
	served := request.Clone(ctx)
	if f.isDetached.Load() {
		served = request.Clone(context.WithoutCancel(ctx))
	}
	served.Body = io.NopCloser(bytes.NewReader(body))
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, served)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return recorder.Result(), nil
}

// befall sets the faults of the next requests.
func (f *fixture) befall(faults ...fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = faults
}

// befallAcquires sets the faults of the next acquires.
func (f *fixture) befallAcquires(faults ...fault) {
	f.only = "acquire"
	f.befall(faults...)
}

// called counts the calls of a function.
func (f *fixture) called(function string) (number int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, call := range f.calls {
		if call == function {
			number++
		}
	}
	return number
}

// lostAnswer has the request carried out and its answer lost.
func lostAnswer(carry func() (*http.Response, error)) (*http.Response, error) {
	response, err := carry()
	if err == nil {
		response.Body.Close()
	}
	return nil, errReset
}

// lostRequest has nothing carried out.
func lostRequest(func() (*http.Response, error)) (*http.Response, error) { return nil, errReset }

// answered has the request carried out, and something else answered.
func answered(status int, body string) fault {
	return func(carry func() (*http.Response, error)) (*http.Response, error) {
		response, err := carry()
		if err == nil {
			response.Body.Close()
		}
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1}, nil
	}
}

func (f *fixture) wantCalls(want ...string) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.calls, want) {
		f.t.Errorf("asked for %q, want %q", f.calls, want)
	}
}

func (f *fixture) wantHeld(want ...string) {
	f.t.Helper()
	held := []string{}
	for _, found := range f.locks.All() {
		held = append(held, string(found.Spec.FullKey()))
	}
	slices.Sort(held)
	if !slices.Equal(held, want) {
		f.t.Errorf("held are %q, want %q", held, want)
	}
}

// hold acquires a global lock for a minute, which is not recorded.
func (f *fixture) hold(key, owner string) {
	f.t.Helper()
	request := lock.Request{Acquisition: rules.Acquisition{Key: key, Owner: owner, TTL: time.Minute, Holder: "alice"}}
	if _, err := f.locks.Acquire(f.t.Context(), namespace, request); err != nil {
		f.t.Fatal(err)
	}
	f.locks.Calls()
}

func forKey(key string) lock.Request {
	return lock.Request{Acquisition: rules.Acquisition{Key: key, TTL: 30 * time.Second}}
}

func waiting(wait time.Duration) lock.Request {
	request := forKey("k")
	request.Wait = wait
	return request
}
