package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit/audittest"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// tokenUsers takes a bearer token for the name of the user, who may do everything but what deny names, as "user verb", unless
// allow names the lock, as "user verb name".
type tokenUsers struct {
	deny, allow map[string]bool
	// uid is that of all users.
	uid string
	// failing is the error of all reviews of tokens, unless it is nil.
	failing error
	// asked counts the reviews of rights.
	asked atomic.Int32
}

// Authenticate implements [access.Access].
func (u *tokenUsers) Authenticate(r *http.Request) (user.Info, error) {
	if u.failing != nil {
		return nil, u.failing
	}
	name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer token-of-")
	if !ok {
		return nil, fmt.Errorf("%w: send a bearer token", lock.ErrUnauthenticated)
	}
	return &user.DefaultInfo{Name: name, UID: u.uid}, nil
}

// Authorize implements [access.Access].
func (u *tokenUsers) Authorize(_ context.Context, who user.Info, right authorizationv1.ResourceAttributes) error {
	u.asked.Add(1)
	asked := who.GetName() + " " + right.Verb
	if u.deny[asked] && (right.Name == "" || !u.allow[asked+" "+right.Name]) {
		return fmt.Errorf("%w: %s lacks %s", lock.ErrForbidden, who.GetName(), right.Verb)
	}
	return nil
}

func set(names ...string) map[string]bool {
	all := map[string]bool{}
	for _, name := range names {
		all[name] = true
	}
	return all
}

// manyHolders finds every object, and counts how often it is asked.
type manyHolders struct{ asked atomic.Int32 }

func (h *manyHolders) Check(context.Context, string, rules.ValidReference) error {
	h.asked.Add(1)
	return nil
}

// doors is a façade with both doors on locks in memory, with a clock that stands still.
type doors struct {
	*server.Server

	t       *testing.T
	clock   *clocktesting.FakeClock
	locks   *locktest.Backend
	users   *tokenUsers
	holders manyHolders
	records audittest.Recorder
	logging sync.Mutex
	log     strings.Builder
}

var refusedAt = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

func openDoors(t *testing.T, configure ...func(*testfacade.Settings)) *doors {
	t.Helper()
	d := &doors{t: t, clock: clocktesting.NewFakeClock(refusedAt), users: &tokenUsers{}}
	d.locks = locktest.New(locktest.WithClock(d.clock), locktest.WithRecord())
	settings := testfacade.Settings{
		Locks: d.locks, Access: d.users, Holders: &d.holders, Clock: d.clock, Server: server.Options{Clock: d.clock, Audit: &d.records},
		Logger: funcr.New(func(prefix, args string) {
			d.logging.Lock()
			defer d.logging.Unlock()
			d.log.WriteString(prefix + args + "\n")
		}, funcr.Options{}),
	}
	for _, change := range configure {
		change(&settings)
	}
	var err error
	if d.Server, err = testfacade.New(settings); err != nil {
		t.Fatal(err)
	}
	return d
}

// ask is what a caller asks a door for.
type ask struct {
	// verb is one of acquire, renew, release, force, status, list and waiters.
	verb string
	key  string
	// function is that of the lock. Empty if it is global.
	function string
	// token is the proof of a renewal or a release at the REST door; that at the Forrst door is always the same.
	token string
	// wait is how many seconds an acquire may wait. Not at all if it is empty.
	wait string
	// members are more members of an acquire, such as `"priority":1`, which are the same at both doors.
	members string
	// padding is how many bytes of white space the body ends with.
	padding int
}

// doorway is how one of the doors is asked.
type doorway struct {
	request func(ask) (method, path, body string)
	// codes are the words for some of the statuses.
	codes map[int]string
}

var doorways = map[string]doorway{
	"rest": {restRequest, map[int]string{
		403: "forbidden", 429: "too-many-calls", 500: "internal-error", 503: "unavailable",
	}},
	"forrst": {forrstRequest, map[int]string{
		403: "FORBIDDEN", 429: "RATE_LIMITED", 500: "INTERNAL_ERROR", 503: "UNAVAILABLE",
	}},
}

func restRequest(a ask) (method, path, body string) {
	path = "/v1/namespaces/payments/locks/" + a.key
	if a.function != "" && a.verb != "acquire" {
		path += "?function=" + a.function
	}
	switch a.verb {
	case "acquire":
		method, body = http.MethodPost, `"ttl_seconds":60`
		if a.function != "" {
			body += `,"function":"` + a.function + `"`
		}
		if a.wait != "" {
			body += `,"wait_seconds":` + a.wait
		}
		if a.members != "" {
			body += "," + a.members
		}
		body = "{" + body + "}"
	case "renew":
		method, body = http.MethodPut, `{"ttl_seconds":60}`
	case "release":
		method = http.MethodDelete
	case "force":
		method = http.MethodDelete
		path += map[bool]string{true: "?", false: "&"}[a.function == ""] + "force=true&reason=stuck"
	case "status":
		method = http.MethodGet
	case "waiters":
		method, path = http.MethodGet, "/v1/namespaces/payments/locks/"+a.key+"/waiters"
	case "list":
		method, path = http.MethodGet, "/v1/namespaces/payments/locks"
	}
	return method, path, body
}

func forrstRequest(a ask) (method, path, body string) {
	name := map[string]string{"force": "urn:cline:forrst:ext:atomic-lock:fn:force-release"}[a.verb]
	if name == "" {
		name = "urn:k8s:forrst:ext:atomic-lock:fn:" + a.verb
	}
	members := `"key":"` + a.key + `"`
	switch a.verb {
	case "acquire":
		members += `,"owner":"secret-owner","ttl":{"value":60}`
		if a.function != "" {
			members += `,"scope":"function","function":"` + a.function + `"`
		}
		if a.wait != "" {
			members += `,"block":{"value":` + a.wait + `}`
		}
		if a.members != "" {
			members += "," + a.members
		}
	case "list":
		members = ""
	default:
		if a.function != "" {
			members = `"key":"` + a.function + ":" + a.key + `"`
		}
		members += map[string]string{"renew": `,"owner":"secret-owner"`, "release": `,"owner":"secret-owner"`, "force": `,"reason":"stuck"`}[a.verb]
	}
	return http.MethodPost, "/forrst/payments", forrstCall(name, "{"+members+"}")
}

func forrstCall(function, arguments string) string {
	return fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","call":{"function":%q,"arguments":%s}}`, function, arguments)
}

// reply is what came back.
type reply struct {
	t      *testing.T
	door   string
	status int
	header http.Header
	body   string
}

// want checks the status, and the word that the door has for it.
func (r reply) want(status int) reply {
	r.t.Helper()
	if r.status != status || !strings.Contains(r.body, doorways[r.door].codes[status]) {
		r.t.Errorf("%s: status %d, want %d %s: %.500s", r.door, r.status, status, doorways[r.door].codes[status], r.body)
	}
	if isForNow := status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable; isForNow && r.header.Get("Retry-After") == "" {
		r.t.Errorf("%s: the refusal does not tell when to try again", r.door)
	}
	return r
}

// request builds the request of a user, who shows no token if there is none.
func (d *doors) request(ctx context.Context, door, who string, a ask) *http.Request {
	method, path, body := doorways[door].request(a)
	request := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body+strings.Repeat(" ", a.padding)))
	request.Header.Set("Content-Type", "application/json")
	if who != "" {
		request.Header.Set("Authorization", "Bearer token-of-"+who)
	}
	if isProof := a.verb == "renew" || a.verb == "release"; isProof && a.token != "" && door == "rest" {
		request.Header.Set("X-Lock-Token", a.token)
	}
	return request
}

func (d *doors) send(door string, request *http.Request) reply {
	recorder := httptest.NewRecorder()
	d.ServeHTTP(recorder, request)
	return reply{d.t, door, recorder.Code, recorder.Header(), recorder.Body.String()}
}

func (d *doors) ask(door, who string, a ask) reply {
	return d.send(door, d.request(d.t.Context(), door, who, a))
}

// begin asks in a goroutine of its own.
func (d *doors) begin(door, who string, a ask) <-chan reply {
	replies := make(chan reply, 1)
	go func() { replies <- d.ask(door, who, a) }()
	return replies
}

// acquire takes a lock for alice, and returns its token at the REST door.
func (d *doors) acquire(door, key string) (token string) {
	d.t.Helper()
	got := d.ask(door, "alice", ask{verb: "acquire", key: key})
	var granted struct {
		LockToken string `json:"lock_token"`
	}
	if err := json.Unmarshal([]byte(got.body), &granted); err != nil || got.status/100 != 2 {
		d.t.Fatalf("%s: status %d: %s", door, got.status, got.body)
	}
	return granted.LockToken
}

// hold acquires a lock past the doors, and returns what releases it.
func (d *doors) hold(key string) (release func()) {
	d.t.Helper()
	const owner = "another-owner"
	if _, err := d.locks.Acquire(d.t.Context(), "payments", lock.Request{Acquisition: rules.Acquisition{Key: key, Owner: owner, Holder: "carol", TTL: time.Hour}}); err != nil {
		d.t.Fatal(err)
	}
	d.locks.Calls()
	return func() {
		if err := d.locks.Release(d.t.Context(), "payments", v1alpha1.FullKeyOf(key), lock.Proof{Owner: owner}); err != nil {
			d.t.Error(err)
		}
	}
}

// wantNothingAsked fails if the backend was asked for anything since it was last looked at.
func (d *doors) wantNothingAsked() {
	d.t.Helper()
	if calls := d.locks.Calls(); len(calls) > 0 {
		d.t.Errorf("the backend was asked for %+v", calls)
	}
}

// atEachDoor runs a test once for each door, each time with doors of its own.
func atEachDoor(t *testing.T, test func(t *testing.T, door string)) {
	t.Helper()
	for door := range doorways {
		t.Run(door, func(t *testing.T) { test(t, door) })
	}
}

// writing tells when an answer is written.
type writing struct {
	*httptest.ResponseRecorder

	began func()
}

func (w *writing) Write(body []byte) (int, error) {
	w.began()
	return w.ResponseRecorder.Write(body)
}
