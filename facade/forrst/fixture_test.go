package forrst_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testfacade"
)

const (
	namespace = "default"
	// generated is the owner token of acquisitions that name none.
	generated = "550e8400-e29b-41d4-a716-446655440000"
)

// fixture is a façade on locks in memory, with a clock that stands still.
type fixture struct {
	*server.Server

	// served is what the façade is made of.
	served served
	door   *forrst.Handler

	t     testing.TB
	clock *clocktesting.FakeClock
	// locks records the calls for it.
	locks *locktest.Backend
	// before holds what runs ahead of the calls of a method of locks, and can fail them.
	before map[locktest.Verb]func(context.Context) error
	// joined runs when an acquisition has joined the queue. The default ends the wait at once.
	joined func(context.Context) error
	// granted, if set, runs after an acquisition.
	granted func()
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
	f := &fixture{t: tb, clock: fake, log: &strings.Builder{}, before: map[locktest.Verb]func(context.Context) error{}}
	f.joined = func(context.Context) error { return lock.ErrTimeout }
	var logging sync.Mutex
	config := testfacade.Settings{
		Namespace: namespace, Clock: fake,
		Logger: funcr.New(func(prefix, args string) {
			logging.Lock()
			defer logging.Unlock()
			f.log.WriteString(prefix + args + "\n")
		}, funcr.Options{Verbosity: 9}),
	}
	configure(&config)
	f.locks = locktest.New(locktest.WithClock(config.Clock), locktest.WithOwner(generated), locktest.WithRecord(), locktest.WithHooks(f.hooks()))
	if config.Locks == nil {
		config.Locks = f.locks
	}
	var err error
	f.served = served{config, functions}
	if f.Server, f.door, err = f.served.buildWithDoor(config.Server); err != nil {
		tb.Fatal(err)
	}
	return f
}

func (f *fixture) hooks() locktest.Hooks {
	return locktest.Hooks{
		Before: func(ctx context.Context, call locktest.Call) error {
			if hook := f.before[call.Verb]; hook != nil {
				return hook(ctx)
			}
			return nil
		},
		Waiting: func(ctx context.Context, _ locktest.Call) error { return f.joined(ctx) },
		After: func(_ context.Context, call locktest.Call) error {
			if call.Verb == locktest.Acquire && f.granted != nil {
				f.granted()
			}
			return nil
		},
	}
}

// requests returns the acquisitions since the last call of requests or of locks.Calls.
func (f *fixture) requests() []lock.Request {
	var requests []lock.Request
	for _, call := range f.locks.Calls() {
		if call.Verb == locktest.Acquire {
			requests = append(requests, call.Request)
		}
	}
	return requests
}

// left returns the full keys of the locks that are held or have expired, sorted.
func (f *fixture) left() []string {
	keys := []string{}
	for _, found := range f.locks.All() {
		keys = append(keys, string(found.Spec.FullKey()))
	}
	slices.Sort(keys)
	return keys
}

// served is a façade with functions of the tests.
type served struct {
	testfacade.Settings

	functions []forrst.Function
}

func (s served) build(options server.Options) (*server.Server, error) {
	built, _, err := s.buildWithDoor(options)
	return built, err
}

func (s served) buildWithDoor(options server.Options) (*server.Server, *forrst.Handler, error) {
	settings := s.Settings
	options.Limits, options.Metrics = settings.Server.Limits, settings.Server.Metrics
	settings.Server = options
	built, door, err := testfacade.NewWithDoor(settings)
	if err == nil {
		door.Add(s.functions...)
	}
	return built, door, err
}

// listening returns the façade on a listener.
func (f *fixture) listening(listener net.Listener) *server.Server {
	listening, err := f.served.build(server.Options{Listener: listener})
	if err != nil {
		f.t.Fatal(err)
	}
	return listening
}

// hold acquires a global lock, which is not recorded, or fails the test.
func (f *fixture) hold(key, owner string, ttl time.Duration) {
	f.t.Helper()
	_, err := f.locks.Acquire(f.t.Context(), namespace, lock.Request{Acquisition: rules.Acquisition{Key: key, Owner: owner, TTL: ttl, Holder: "alice"}})
	if err != nil {
		f.t.Fatal(err)
	}
	f.locks.Calls()
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
	if diff := cmp.Diff(append([]string{}, keys...), f.left()); diff != "" {
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
