package rest_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/rest"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testfacade"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a façade on locks in memory, with a clock that stands still. Its callers say who they are in
// the header User.
type fixture struct {
	*server.Server
	t     testing.TB
	clock *clocktesting.FakeClock
	locks *locktest.Backend
	log   *strings.Builder
}

func settings() testfacade.Settings {
	return testfacade.Settings{Access: &callers{}, Holders: anyHolder{}, Clock: clocktesting.NewFakeClock(time.Date(2026, 3, 15, 10, 30, 0, 0, time.UTC))}
}

// buildFixture panics if the settings are wrong.
func buildFixture(chosen testfacade.Settings) *fixture {
	f := &fixture{log: &strings.Builder{}}
	f.clock, _ = chosen.Clock.(*clocktesting.FakeClock)
	f.locks = locktest.New(locktest.WithClock(chosen.Clock), locktest.WithRecord())
	if chosen.Locks == nil {
		chosen.Locks = f.locks
	}
	var mu sync.Mutex
	chosen.Logger = funcr.New(func(prefix, args string) {
		mu.Lock()
		defer mu.Unlock()
		f.log.WriteString(prefix + args + "\n")
	}, funcr.Options{Verbosity: 9})
	var err error
	if f.Server, err = testfacade.New(chosen); err != nil {
		panic(err)
	}
	return f
}

func newFixture(tb testing.TB, changes ...func(*testfacade.Settings)) *fixture {
	tb.Helper()
	chosen := settings()
	for _, change := range changes {
		change(&chosen)
	}
	f := buildFixture(chosen)
	f.t = tb
	return f
}

// anyHolder finds every object.
type anyHolder struct{}

func (anyHolder) Check(context.Context, string, rules.ValidReference) error { return nil }

// withoutIdentities is a façade that authenticates no caller.
func withoutIdentities(s *testfacade.Settings) { s.Access, s.Namespace = nil, "payments" }

// callers believe the header User, and let each caller do everything but what deny names, unless
// allow does, as "user verb name".
type callers struct{ deny, allow []string }

// Authenticate implements [access.Access].
func (c *callers) Authenticate(r *http.Request) (user.Info, error) {
	name := r.Header.Get("User")
	switch name {
	case "":
		name = "alice"
	case "nobody":
		return nil, lock.ErrUnauthenticated
	}
	return &user.DefaultInfo{Name: name}, nil
}

// Authorize implements [access.Access].
func (c *callers) Authorize(_ context.Context, who user.Info, right authorizationv1.ResourceAttributes) error {
	asked := who.GetName() + " " + right.Verb
	if slices.Contains(c.deny, asked) && (right.Name == "" || !slices.Contains(c.allow, asked+" "+right.Name)) {
		return lock.ErrForbidden
	}
	return nil
}

// answer is what came back for a request.
type answer struct {
	t      testing.TB
	status int
	header http.Header
	body   string
}

const (
	report  = "/v1/namespaces/payments/locks/billing:report"
	ofSixty = `{"ttl_seconds":60}`
)

// do sends a request with headers, name after value, and checks it and its answer by the contract.
func (f *fixture) do(method, path, body string, headers ...string) answer {
	f.t.Helper()
	request := httptest.NewRequestWithContext(f.t.Context(), method, path, strings.NewReader(body))
	for pair := range slices.Chunk(headers, 2) {
		request.Header.Add(pair[0], pair[1])
	}
	if body != "" && request.Header.Get("Content-Type") == "" {
		request.Header.Set("Content-Type", "application/json")
	}
	return f.send(request, body)
}

// firstEvent ends a stream when its first event is there.
type firstEvent struct {
	*httptest.ResponseRecorder
	end context.CancelFunc
}

// FlushError is for [http.ResponseController].
func (w firstEvent) FlushError() error {
	w.ResponseRecorder.Flush()
	if w.Header().Get("Content-Type") == "text/event-stream" {
		w.end()
	}
	return nil
}

func (f *fixture) send(request *http.Request, body string) answer {
	f.t.Helper()
	recorder := httptest.NewRecorder()
	sent := request.Clone(request.Context())
	ctx, end := context.WithCancel(request.Context())
	defer end()
	f.ServeHTTP(firstEvent{recorder, end}, request.WithContext(ctx))
	result := recorder.Result()
	text, err := io.ReadAll(result.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	if request.Method == http.MethodHead { // As the server does.
		text = nil
	}
	// What has empty segments or dots does not come to the door.
	isUnclean := result.StatusCode == http.StatusNotFound && result.Header.Get("Content-Type") == "text/plain; charset=utf-8"
	if strings.HasPrefix(request.URL.Path, "/v1/") && !isUnclean {
		if err := theContract(f.t).check(sent, []byte(body), result.StatusCode, result.Header, text); err != nil {
			f.t.Errorf("%s %s %s: %v", request.Method, request.URL, body, err)
		}
	}
	if result.Header.Get("Content-Type") == "text/event-stream" {
		if err := theContract(f.t).checkEvents(string(text)); err != nil {
			f.t.Errorf("%s %s: %v", request.Method, request.URL, err)
		}
	}
	return answer{f.t, result.StatusCode, result.Header, string(text)}
}

// want checks the status and, of a problem, the end of its type.
func (a answer) want(status int, problem ...string) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	if len(problem) > 0 {
		if got := a.problem().Type; got != "urn:lock-operator:problem:"+problem[0] {
			a.t.Errorf("problem %s, want %s: %s", got, problem[0], a.body)
		}
	}
	return a
}

func decode[T any](a answer) T {
	a.t.Helper()
	var value T
	if err := json.Unmarshal([]byte(a.body), &value); err != nil {
		a.t.Fatalf("%v: %s", err, a.body)
	}
	return value
}

func (a answer) lock() wire.Lock { a.t.Helper(); return decode[wire.Lock](a) }

func (a answer) problem() rest.Problem { a.t.Helper(); return decode[rest.Problem](a) }

// acquire returns the lock token of an acquired lock.
func (f *fixture) acquire(path, body string, headers ...string) string {
	f.t.Helper()
	return f.do(http.MethodPost, path, body, headers...).want(http.StatusCreated).lock().LockToken
}

// holdDirectly acquires a lock past the doors.
func (f *fixture) holdDirectly(key, owner, holder string, ttl time.Duration) {
	f.t.Helper()
	_, err := f.locks.Acquire(f.t.Context(), "payments", lock.Request{Acquisition: rules.Acquisition{Key: key, Owner: owner, Holder: holder, TTL: ttl}})
	if err != nil {
		f.t.Fatal(err)
	}
}

// left returns the keys of the locks that are stored.
func (f *fixture) left() []string {
	keys := []string{}
	for _, each := range f.locks.All() {
		keys = append(keys, each.Spec.Key)
	}
	return keys
}

const theReport = v1alpha1.FullKey("lock:billing:report")
