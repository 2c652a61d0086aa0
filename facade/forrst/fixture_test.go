package forrst_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testfacade"
)

const (
	namespace = "default"
	// generated is the owner token of acquisitions that name none.
	generated = "550e8400-e29b-41d4-a716-446655440000"
)

// fakeLocks keeps locks in memory by the same rules as the engine. The hooks, if set,
// run first, and can fail.
type fakeLocks struct {
	lock.Backend

	clock clock.PassiveClock

	acquireHook, renewHook, releaseHook, getHook, listHook func(context.Context) error
	// waitHook waits for a change of the locks; nil as an error means to try again. Without
	// it every wait is over at once.
	waitHook func(ctx context.Context, changed <-chan struct{}) error
	// granted runs after an acquisition.
	granted func()

	mu   sync.Mutex
	held map[v1alpha1.FullKey]*v1alpha1.Lock
	// changed is closed when a lock ends.
	changed chan struct{}
	// requests are the acquisitions that were tried.
	requests []lock.Request
	// reasons are those of forced releases.
	reasons []string
	// revision is that of the last write.
	revision int
}

func (f *fakeLocks) Acquire(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, request)
	if err := run(ctx, f.acquireHook); err != nil {
		return nil, err
	}
	if request.Owner == "" {
		request.Owner = generated
	}
	key := request.FullKey()
	for current := f.live(key); current != nil; current = f.live(key) {
		held := &lock.HeldError{Key: key, Holder: current.Spec.Holder, ExpireTime: current.Spec.ExpireTime.Time}
		if request.Wait == 0 {
			return nil, held
		}
		if f.waitHook == nil {
			return nil, fmt.Errorf("%w: %w", lock.ErrTimeout, held)
		}
		if err := f.wait(ctx); err != nil {
			return nil, err
		}
	}
	if err := request.Validate(rules.DefaultLimits()); err != nil {
		return nil, err
	}
	granted := rules.Grant(namespace, request.Acquisition, rules.DefaultLimits(), f.clock.Now())
	f.revision++
	granted.ResourceVersion = strconv.Itoa(f.revision)
	f.held[key] = granted
	if f.granted != nil {
		f.granted()
	}
	return granted, nil
}

func (f *fakeLocks) wait(ctx context.Context) error {
	changed := f.changed
	f.mu.Unlock()
	defer f.mu.Lock()
	return f.waitHook(ctx, changed)
}

func (f *fakeLocks) Renew(ctx context.Context, _ string, key v1alpha1.FullKey, proof lock.Proof, ttl time.Duration) (*v1alpha1.Lock, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := run(ctx, f.renewHook); err != nil {
		return nil, err
	}
	next, err := rules.Renew(f.held[key], proof, ttl, rules.DefaultLimits(), f.clock.Now())
	if err != nil {
		return nil, err
	}
	f.revision++
	next.ResourceVersion = strconv.Itoa(f.revision)
	f.held[key] = next
	return next, nil
}

func (f *fakeLocks) List(ctx context.Context, _ string, filter lock.Filter) ([]v1alpha1.Lock, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := run(ctx, f.listHook); err != nil {
		return nil, err
	}
	var locks []v1alpha1.Lock
	for _, key := range slices.Sorted(maps.Keys(f.held)) {
		if current := f.live(key); current != nil && (filter.Owner == "" || filter.Owner == current.Spec.Owner) {
			locks = append(locks, *current)
		}
	}
	return locks, nil
}

func (f *fakeLocks) Release(ctx context.Context, _ string, key v1alpha1.FullKey, proof lock.Proof) error {
	return f.end(ctx, key, func(current *v1alpha1.Lock) error { return rules.Release(current, proof, f.clock.Now()) })
}

func (f *fakeLocks) ForceRelease(ctx context.Context, _ string, key v1alpha1.FullKey, reason string) error {
	f.reasons = append(f.reasons, reason)
	return f.end(ctx, key, func(current *v1alpha1.Lock) error { return rules.ForceRelease(current, f.clock.Now()) })
}

func (f *fakeLocks) end(ctx context.Context, key v1alpha1.FullKey, allowed func(*v1alpha1.Lock) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := run(ctx, f.releaseHook); err != nil {
		return err
	}
	if err := allowed(f.held[key]); err != nil {
		return err
	}
	delete(f.held, key)
	close(f.changed)
	f.changed = make(chan struct{})
	return nil
}

func (f *fakeLocks) Get(ctx context.Context, _ string, key v1alpha1.FullKey) (*v1alpha1.Lock, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := run(ctx, f.getHook); err != nil {
		return nil, err
	}
	if current := f.live(key); current != nil {
		return current, nil
	}
	return nil, lock.ErrNotHeld
}

func (f *fakeLocks) live(key v1alpha1.FullKey) *v1alpha1.Lock {
	if current := f.held[key]; current != nil && !rules.Expired(current, f.clock.Now()) {
		return current
	}
	return nil
}

// keys returns what is held or has expired, sorted.
func (f *fakeLocks) keys() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	keys := []string{}
	for _, key := range slices.Sorted(maps.Keys(f.held)) {
		keys = append(keys, string(key))
	}
	return keys
}

func run(ctx context.Context, hook func(context.Context) error) error {
	if hook == nil {
		return nil
	}
	return hook(ctx)
}

// fixture is a façade on fake locks at a moment that does not pass by itself.
type fixture struct {
	*server.Server

	// served is what the façade is made of.
	served served

	t     testing.TB
	clock *clocktesting.FakeClock
	locks *fakeLocks
	// log holds everything that was logged.
	log *strings.Builder
}

func newFixture(tb testing.TB, functions ...forrst.Function) *fixture {
	tb.Helper()
	return newFixtureWith(tb, func(*testfacade.Settings) {}, functions...)
}

// newFixtureWith lets the caller change the configuration.
func newFixtureWith(tb testing.TB, configure func(*testfacade.Settings), functions ...forrst.Function) *fixture {
	tb.Helper()
	fake := clocktesting.NewFakeClock(time.Date(2024, 3, 15, 10, 30, 0, 0, time.UTC))
	f := &fixture{t: tb, clock: fake, log: &strings.Builder{}}
	f.locks = &fakeLocks{clock: fake, held: map[v1alpha1.FullKey]*v1alpha1.Lock{}, changed: make(chan struct{})}
	var logging sync.Mutex
	config := testfacade.Settings{
		Locks: f.locks, Namespace: namespace, Clock: fake,
		Logger: funcr.New(func(prefix, args string) {
			logging.Lock()
			defer logging.Unlock()
			f.log.WriteString(prefix + args + "\n")
		}, funcr.Options{Verbosity: 9}),
	}
	configure(&config)
	var err error
	f.served = served{config, functions}
	if f.Server, err = f.served.build(config.Server); err != nil {
		tb.Fatal(err)
	}
	return f
}

// served is a façade with functions of the tests.
type served struct {
	testfacade.Settings

	functions []forrst.Function
}

func (s served) build(options server.Options) (*server.Server, error) {
	settings := s.Settings
	options.Limits, options.Metrics = settings.Server.Limits, settings.Server.Metrics
	settings.Server = options
	built, door, err := testfacade.NewWithDoor(settings)
	if err == nil {
		door.Add(s.functions...)
	}
	return built, err
}

// listening returns the façade on a listener.
func (f *fixture) listening(listener net.Listener) *server.Server {
	listening, err := f.served.build(server.Options{Listener: listener})
	if err != nil {
		f.t.Fatal(err)
	}
	return listening
}

// hold acquires a global lock, or fails the test.
func (f *fixture) hold(key, owner string, ttl time.Duration) {
	f.t.Helper()
	_, err := f.locks.Acquire(f.t.Context(), namespace, lock.Request{Acquisition: rules.Acquisition{Key: key, Owner: owner, TTL: ttl, Holder: "somebody"}})
	if err != nil {
		f.t.Fatal(err)
	}
}

// answer is what came back for a request.
type answer struct {
	status int
	header http.Header
	body   string
	envelope.Response
	// fencing is the token of the entry beside those of the protocol, or 0. Extensions
	// does not have the entry.
	fencing int64
}

func (a *answer) takeFencing(tb testing.TB) {
	tb.Helper()
	a.Extensions = slices.DeleteFunc(a.Extensions, func(entry envelope.ResponseExtension) bool {
		if entry.URN != wire.FencingURN {
			return false
		}
		var fencing wire.Fencing
		if err := json.Unmarshal(entry.Data, &fencing); err != nil || fencing.Token <= 0 || a.fencing != 0 {
			tb.Errorf("fencing entry %s, %v", entry.Data, err)
		}
		a.fencing = fencing.Token
		return true
	})
}

func (f *fixture) post(body string) answer {
	f.t.Helper()
	return f.serve(httptest.NewRequestWithContext(f.t.Context(), http.MethodPost, forrst.Path, strings.NewReader(body)))
}

func (f *fixture) serve(request *http.Request) answer {
	f.t.Helper()
	recorder := httptest.NewRecorder()
	f.ServeHTTP(recorder, request)
	got := answer{status: recorder.Code, header: recorder.Header(), body: recorder.Body.String()}
	if err := json.Unmarshal([]byte(got.body), &got.Response); err != nil {
		f.t.Fatalf("the answer is not an envelope: %v: %q", err, got.body)
	}
	if got.Protocol != (envelope.Protocol{Name: "forrst", Version: "0.1.0"}) {
		f.t.Errorf("the answer speaks %v", got.Protocol)
	}
	got.takeFencing(f.t)
	if string(got.Result) != "null" && len(got.Errors) > 0 {
		f.t.Errorf("a failure has result %s", got.Result)
	}
	return got
}

// problems writes each error of an answer as "CODE pointer".
func (a *answer) problems() []string {
	problems := []string{}
	for _, problem := range a.Errors {
		text := string(problem.Code)
		if problem.Source != nil && problem.Source.Pointer != nil {
			text += " " + *problem.Source.Pointer
		}
		problems = append(problems, text)
	}
	return problems
}

func (f *fixture) wantHeld(keys ...string) {
	f.t.Helper()
	if diff := cmp.Diff(append([]string{}, keys...), f.locks.keys()); diff != "" {
		f.t.Errorf("locks that are left (-want +got):\n%s", diff)
	}
}

func (f *fixture) wantProblems(got answer, status int, problems ...string) {
	f.t.Helper()
	if diff := cmp.Diff(problems, got.problems()); diff != "" || got.status != status {
		f.t.Errorf("status %d, want %d; errors (-want +got):\n%s\nin %s", got.status, status, diff, got.body)
	}
}

// envelope is a request for a function with members such as "arguments".
func envelopeWith(function, callMembers, extensions string) string {
	return fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"a-1","call":{"function":%q%s},"extensions":[%s]}`, function, callMembers, extensions)
}

const ping = "urn:cline:forrst:fn:ping"

// locked is the lock extension with options.
func locked(options string) string {
	return `{"urn":"urn:cline:forrst:ext:atomic-lock","options":` + options + `}`
}

// function is a function of the tests.
func function(name string, invoke forrst.Invocation) forrst.Function {
	return forrst.Function{Name: name, Prepare: func(*envelope.Request) (forrst.Invocation, envelope.Errors) {
		return invoke, nil
	}}
}

func result(value string) forrst.Invocation {
	return func(context.Context) (any, error) { return json.RawMessage(value), nil }
}

var errBroken = errors.New("something broke")
