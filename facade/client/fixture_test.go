package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testfacade"
)

const namespace = "default"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory keeps locks by the same rules as the engine, behind the façade.
type memory struct {
	lock.Backend

	clock *clocktesting.FakeClock
	// fail, if set, is the outcome of everything.
	fail error

	mu      sync.Mutex
	held    map[v1alpha1.FullKey]*v1alpha1.Lock
	changed chan struct{}
	// waits are those of the acquisitions that were tried.
	waits    []time.Duration
	requests []lock.Request
	reasons  []string
	revision int
	// waiting gets a value for each acquisition that begins to wait.
	waiting chan struct{}
	// isInVain has waits end with their time, for tests in a bubble of synctest.
	isInVain bool
}

func (m *memory) Acquire(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits, m.requests = append(m.waits, request.Wait), append(m.requests, request)
	if m.fail != nil {
		return nil, m.fail
	}
	for current := m.live(request.FullKey()); current != nil; current = m.live(request.FullKey()) {
		held := &lock.HeldError{Key: request.FullKey(), Holder: current.Spec.Holder, ExpireTime: current.Spec.ExpireTime.Time}
		if request.Wait == 0 {
			return nil, held
		}
		if m.isInVain {
			time.Sleep(request.Wait) //nolint:forbidigo // Only the fake clock of the bubble moves.
			return nil, fmt.Errorf("%w: %w", lock.ErrTimeout, held)
		}
		if err := m.wait(ctx); err != nil {
			return nil, err
		}
	}
	if err := request.Validate(rules.DefaultLimits()); err != nil {
		return nil, err
	}
	granted := rules.Grant(namespace, request.Acquisition, rules.DefaultLimits(), m.clock.Now())
	m.store(granted)
	return granted, nil
}

func (m *memory) wait(ctx context.Context) error {
	changed := m.changed
	m.mu.Unlock()
	defer m.mu.Lock()
	m.waiting <- struct{}{}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changed:
		return nil
	}
}

func (m *memory) store(written *v1alpha1.Lock) {
	m.revision++
	written.ResourceVersion = strconv.Itoa(m.revision)
	m.held[written.Spec.FullKey()] = written
}

func (m *memory) Renew(_ context.Context, _ string, key v1alpha1.FullKey, proof lock.Proof, ttl time.Duration) (*v1alpha1.Lock, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return nil, m.fail
	}
	next, err := rules.Renew(m.held[key], proof, ttl, rules.DefaultLimits(), m.clock.Now())
	if err != nil {
		return nil, err
	}
	m.store(next)
	return next, nil
}

func (m *memory) Release(_ context.Context, _ string, key v1alpha1.FullKey, proof lock.Proof) error {
	return m.end(key, func(current *v1alpha1.Lock) error { return rules.Release(current, proof, m.clock.Now()) })
}

func (m *memory) ForceRelease(_ context.Context, _ string, key v1alpha1.FullKey, reason string) error {
	return m.end(key, func(current *v1alpha1.Lock) error {
		m.reasons = append(m.reasons, reason)
		return rules.ForceRelease(current, m.clock.Now())
	})
}

func (m *memory) end(key v1alpha1.FullKey, allowed func(*v1alpha1.Lock) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	if err := allowed(m.held[key]); err != nil {
		return err
	}
	delete(m.held, key)
	close(m.changed)
	m.changed = make(chan struct{})
	return nil
}

func (m *memory) Get(_ context.Context, _ string, key v1alpha1.FullKey) (*v1alpha1.Lock, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return nil, m.fail
	}
	if current := m.live(key); current != nil {
		return current, nil
	}
	return nil, lock.ErrNotHeld
}

func (m *memory) List(_ context.Context, _ string, filter lock.Filter) ([]v1alpha1.Lock, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return nil, m.fail
	}
	var locks []v1alpha1.Lock
	for _, key := range slices.Sorted(maps.Keys(m.held)) {
		if current := m.live(key); current != nil && (filter.Owner == "" || filter.Owner == current.Spec.Owner) {
			locks = append(locks, *current)
		}
	}
	return locks, nil
}

func (m *memory) live(key v1alpha1.FullKey) *v1alpha1.Lock {
	if current := m.held[key]; current != nil && !rules.Expired(current, m.clock.Now()) {
		return current
	}
	return nil
}

// tried returns the waits of the acquisitions that reached the façade.
func (m *memory) tried() []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.waits)
}

// fault stands between client and façade. Carry has the façade carry out the request.
type fault func(carry func() (*http.Response, error)) (*http.Response, error)

// fixture is a client of a façade on locks in memory.
type fixture struct {
	*client.Client

	t     *testing.T
	locks *memory

	mu sync.Mutex
	// faults befall the next requests, one each; nil is none.
	faults []fault
	// calls are the functions that were asked for.
	calls []string
	// headers are those of the last request.
	headers http.Header
	// isDetached keeps the façade from noticing that the caller has gone.
	isDetached bool
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

func newMemory() *memory {
	return &memory{
		clock:   clocktesting.NewFakeClock(time.Date(2024, 3, 15, 10, 30, 0, 0, time.UTC)),
		held:    map[v1alpha1.FullKey]*v1alpha1.Lock{},
		changed: make(chan struct{}), waiting: make(chan struct{}, 100),
	}
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
	f.calls = append(f.calls, name[strings.LastIndex(name, ":")+1:])
	f.headers = request.Header
	var next fault
	if len(f.faults) > 0 {
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
	if f.isDetached {
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
	f.locks.mu.Lock()
	defer f.locks.mu.Unlock()
	held := []string{}
	for _, key := range slices.Sorted(maps.Keys(f.locks.held)) {
		held = append(held, string(key))
	}
	if !slices.Equal(held, want) {
		f.t.Errorf("held are %q, want %q", held, want)
	}
}

// hold has somebody acquire a global lock for a minute.
func (f *fixture) hold(key, owner string) {
	f.t.Helper()
	request := lock.Request{Acquisition: rules.Acquisition{Key: key, Owner: owner, TTL: time.Minute, Holder: "somebody"}}
	if _, err := f.locks.Acquire(f.t.Context(), namespace, request); err != nil {
		f.t.Fatal(err)
	}
	f.locks.waits, f.locks.requests = nil, nil
}

func forKey(key string) lock.Request {
	return lock.Request{Acquisition: rules.Acquisition{Key: key, TTL: 30 * time.Second}}
}

func waiting(wait time.Duration) lock.Request {
	request := forKey("k")
	request.Wait = wait
	return request
}
