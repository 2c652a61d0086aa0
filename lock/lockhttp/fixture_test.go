package lockhttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/lockhttp"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/problems"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	flag     = "/v1/flags/feature-x"
	flagLock = flag + "/lock"
	key      = v1alpha1.FullKey("lock:flag:feature-x")
	aMinute  = `{"ttl_seconds":60}`
)

// fixture is a replica of a service of feature flags.
type fixture struct {
	t       *testing.T
	backend *locktest.Backend
	handler http.Handler
	// edit serves the writes of flags.
	edit http.HandlerFunc
	log  *bytes.Buffer
}

func newFixture(t *testing.T, configure ...func(*lockhttp.Config)) *fixture {
	t.Helper()
	return newReplica(t, locktest.New(locktest.WithHolder("flags"), locktest.WithRecord()), configure...)
}

func newReplica(t *testing.T, backend *locktest.Backend, configure ...func(*lockhttp.Config)) *fixture {
	t.Helper()
	f := &fixture{t: t, backend: backend, log: &bytes.Buffer{}}
	f.edit = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }
	config := lockhttp.Config{
		Client: lock.NewClient(backend, "shop"),
		Key: func(r *http.Request) (string, error) {
			name := r.PathValue("flag")
			if name == "unknown" {
				return "", errors.New("there is no such flag")
			}
			return "flag:" + name, nil
		},
		Logger: funcr.New(func(_, line string) { f.log.WriteString(line + "\n") }, funcr.Options{}),
	}
	for _, each := range configure {
		each(&config)
	}
	flags, err := lockhttp.New(config)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/v1/flags/{flag}", flags.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.edit(w, r) })))
	mux.Handle("/v1/flags/{flag}/lock", flags.LockHandler())
	f.handler = mux
	return f
}

// answer is what came back for a request.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   string
}

// do sends a request with headers, name before value. A body is JSON unless they say otherwise.
func (f *fixture) do(method, path, body string, headers ...string) answer {
	f.t.Helper()
	return f.doIn(f.t.Context(), method, path, body, headers...)
}

func (f *fixture) doIn(ctx context.Context, method, path, body string, headers ...string) answer {
	f.t.Helper()
	recorder := httptest.NewRecorder()
	f.handler.ServeHTTP(recorder, newRequest(ctx, method, path, body, headers...))
	return answer{f.t, recorder.Code, recorder.Header(), recorder.Body.String()}
}

func newRequest(ctx context.Context, method, path, body string, headers ...string) *http.Request {
	request := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for pair := range slices.Chunk(headers, 2) {
		request.Header.Set(pair[0], pair[1])
	}
	return request
}

// want checks the status and, if there is one, the problem.
func (a answer) want(status int, kind ...*problems.Kind) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Errorf("status %d, want %d: %s", a.status, status, a.body)
		return a
	}
	if len(kind) == 0 {
		return a
	}
	problem := decode[problems.Document](a)
	if problem.Type != problems.New(kind[0], "").Type || problem.Status != status || problem.Detail == "" || a.header.Get("Content-Type") != problems.ContentType || a.header.Get("Cache-Control") != "no-store" {
		a.t.Errorf("%v %s, want the problem %s", a.header, a.body, kind[0].Name)
	}
	return a
}

func decode[T any](a answer) T {
	a.t.Helper()
	var into T
	if err := json.Unmarshal([]byte(a.body), &into); err != nil {
		a.t.Errorf("%v: %s", err, a.body)
	}
	return into
}

// acquire returns the token of the lock of the flag.
func (f *fixture) acquire(path, body string) string {
	f.t.Helper()
	token := decode[lockhttp.Lock](f.do(http.MethodPost, path, body).want(http.StatusCreated)).LockToken
	f.backend.Calls()
	return token
}

// requests returns the methods of the backend that were called since it was last called, without those of
// watches, which have goroutines of their own.
func (f *fixture) requests() []locktest.Verb {
	var made []locktest.Verb
	for _, call := range f.backend.Calls() {
		if call.Verb != locktest.Watch {
			made = append(made, call.Verb)
		}
	}
	return made
}

func (f *fixture) wantFree() {
	f.t.Helper()
	if held := f.backend.All(); len(held) > 0 {
		f.t.Errorf("%d locks are left", len(held))
	}
}

func (f *fixture) wantHeld() {
	f.t.Helper()
	if _, err := f.backend.Get(context.WithoutCancel(f.t.Context()), "shop", key); err != nil {
		f.t.Errorf("the lock has ended: %v", err)
	}
}

// inBubble runs a part of a test in a synctest bubble of its own.
func inBubble(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// pass advances the clock of a synctest bubble.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // advances the clock of the bubble
}
