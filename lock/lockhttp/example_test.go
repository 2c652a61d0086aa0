package lockhttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/lockhttp"
	"forrst.dev/lock-operator/lock/locktest"
)

// flags are the feature flags of a service.
type flags struct {
	mu sync.Mutex
	// rollout is the percentage of users for whom a flag is on.
	rollout map[string]int
	// newest is the fencing token of the last write of a flag.
	newest map[string]int64
}

// ServeHTTP answers GET and PATCH of a flag.
func (f *flags) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("flag")
	var change struct {
		RolloutPercentage int `json:"rollout_percentage"`
	}
	if held, ok := lockhttp.FromContext(r.Context()); ok { // every request that is no read
		if err := json.NewDecoder(r.Body).Decode(&change); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if !f.set(name, change.RolloutPercentage, held.FencingToken()) {
			http.Error(w, "the flag was written under a later lock", http.StatusConflict)
			return
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Fprintf(w, `{"rollout_percentage":%d}`, f.rollout[name])
}

// set refuses a write that comes after one of a later holder, as a data store does in the same
// transaction.
func (f *flags) set(name string, percentage int, fencingToken int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fencingToken < f.newest[name] {
		return false
	}
	f.newest[name], f.rollout[name] = fencingToken, percentage
	return true
}

// newFlagService returns the handler of a replica of the service.
func newFlagService(store *flags, locks *lock.Client, configure func(*lockhttp.Config)) (http.Handler, error) {
	config := lockhttp.Config{
		Client: locks,
		Key:    func(r *http.Request) (string, error) { return "flag:" + r.PathValue("flag"), nil },
	}
	configure(&config)
	protected, err := lockhttp.New(config)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/v1/flags/{flag}", protected.Handler(store))
	mux.Handle("/v1/flags/{flag}/lock", protected.LockHandler())
	return mux, nil
}

// editor is a client of the service.
type editor struct {
	name    string
	service http.Handler
	// token is that of the lock that the editor has acquired last.
	token string
}

// send sends a request, with the lock token if the editor has one, and prints the answer.
func (e *editor) send(method, path, body string) {
	request := httptest.NewRequestWithContext(context.Background(), method, path, strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	if e.token != "" {
		request.Header.Set("X-Lock-Token", e.token)
	}
	recorder := httptest.NewRecorder()
	e.service.ServeHTTP(recorder, request)
	var answer struct {
		LockToken string `json:"lock_token"`
		ExpiresAt string `json:"expires_at"`
		Holder    string `json:"holder"`
		Title     string `json:"title"`
		Rollout   *int   `json:"rollout_percentage"`
	}
	_ = json.Unmarshal(recorder.Body.Bytes(), &answer)
	fmt.Printf("%s: %s %s: %d", e.name, method, path, recorder.Code)
	switch {
	case answer.LockToken != "":
		e.token = answer.LockToken
		fmt.Printf(", locked until %s", answer.ExpiresAt)
	case answer.Title != "" && answer.Holder != "":
		fmt.Printf(", %s by %q until %s", answer.Title, answer.Holder, answer.ExpiresAt)
	case answer.Title != "":
		fmt.Printf(", %s", answer.Title)
	case answer.ExpiresAt != "":
		fmt.Printf(", locked until %s", answer.ExpiresAt)
	case answer.Rollout != nil:
		fmt.Printf(", %d %%", *answer.Rollout)
	}
	fmt.Println()
}

// Two people edit a feature flag: each reads it, decides, and writes.
func Example() {
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	backend := locktest.New(locktest.WithClock(clock), locktest.WithHolder("flag-service"))
	locks := lock.NewClient(backend, "flags", lock.WithClock(clock))
	service, err := newFlagService(&flags{rollout: map[string]int{}, newest: map[string]int64{}}, locks, func(c *lockhttp.Config) { c.Clock = clock })
	if err != nil {
		fmt.Println(err)
		return
	}
	const flag = "/v1/flags/feature-x"
	ann, bob := &editor{name: "ann", service: service}, &editor{name: "bob", service: service}

	// Ann locks the flag; Bob is refused at once, but can read it.
	ann.send(http.MethodPost, flag+"/lock", `{"ttl_seconds": 60}`)
	bob.send(http.MethodPost, flag+"/lock", `{"ttl_seconds": 60}`)
	bob.send(http.MethodPatch, flag, `{"rollout_percentage": 10}`)
	bob.send(http.MethodGet, flag, "")
	ann.send(http.MethodPatch, flag, `{"rollout_percentage": 50}`)

	// Ann renews, and then takes too long.
	clock.Step(50 * time.Second)
	ann.send(http.MethodPut, flag+"/lock", `{"ttl_seconds": 30}`)
	clock.Step(31 * time.Second)
	bob.send(http.MethodPost, flag+"/lock", `{"ttl_seconds": 60}`)
	bob.send(http.MethodPatch, flag, `{"rollout_percentage": 60}`)
	ann.send(http.MethodPatch, flag, `{"rollout_percentage": 100}`)
	ann.send(http.MethodDelete, flag+"/lock", "")

	// Bob releases the lock. A write without a token has a lock of its own.
	bob.send(http.MethodDelete, flag+"/lock", "")
	carol := &editor{name: "carol", service: service}
	carol.send(http.MethodPatch, flag, `{"rollout_percentage": 70}`)
	// Output:
	// ann: POST /v1/flags/feature-x/lock: 201, locked until 2026-11-20T12:01:00.000000Z
	// bob: POST /v1/flags/feature-x/lock: 423, The lock is held by "flag-service" until 2026-11-20T12:01:00.000000Z
	// bob: PATCH /v1/flags/feature-x: 423, The lock is held by "flag-service" until 2026-11-20T12:01:00.000000Z
	// bob: GET /v1/flags/feature-x: 200, 0 %
	// ann: PATCH /v1/flags/feature-x: 200, 50 %
	// ann: PUT /v1/flags/feature-x/lock: 200, locked until 2026-11-20T12:01:20.000000Z
	// bob: POST /v1/flags/feature-x/lock: 201, locked until 2026-11-20T12:02:21.000000Z
	// bob: PATCH /v1/flags/feature-x: 200, 60 %
	// ann: PATCH /v1/flags/feature-x: 410, The lock has ended
	// ann: DELETE /v1/flags/feature-x/lock: 410, The lock has ended
	// bob: DELETE /v1/flags/feature-x/lock: 204
	// carol: PATCH /v1/flags/feature-x: 200, 70 %
}
