package lockhttp_test

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"forrst.dev/lock-operator/lock/lockhttp"
)

// check sends any request to a service that has one lock, and fails if the service fails, or if a lock is
// left that no client knows.
func check(t *testing.T, method, path, token, contentType, body string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, mayWait)
		known := f.acquire(flagLock, aMinute)
		request, err := http.NewRequestWithContext(t.Context(), method, "http://service/", strings.NewReader(body))
		if err != nil {
			return // No server passes such a request on.
		}
		request.URL.Path, request.URL.RawPath = path, ""
		switch token {
		case "":
		case "known":
			request.Header.Set("X-Lock-Token", known)
		default:
			request.Header["X-Lock-Token"] = []string{token}
		}
		request.Header.Set("Content-Type", contentType)
		recorder := httptest.NewRecorder()
		f.handler.ServeHTTP(recorder, request)
		if recorder.Code >= 500 {
			t.Errorf("%s %q with %q, %q: status %d, %s", method, path, token, body, recorder.Code, recorder.Body)
		}
		held := 1
		switch {
		case recorder.Code == http.StatusCreated:
			if decode[lockhttp.Lock](answer{t: t, body: recorder.Body.String()}).LockToken == "" {
				t.Error("a client has no token of its lock")
			}
			held++
		case method == http.MethodDelete && path == flagLock && recorder.Code == http.StatusNoContent:
			held--
		}
		if left := len(f.backend.All()); left != held {
			t.Errorf("%s %q with %q, %q: %d locks are left, want %d", method, path, token, body, left, held)
		}
	})
}

var (
	anyMethod      = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"}
	anyPath        = []string{flag, flagLock, "/v1/flags/other", "/v1/flags/other/lock", "/v1/flags/\xff/lock", "/v1/flags/\x00", "/v1/flags/unknown/lock", "/", "//", "/v1/flags/../lock"}
	anyToken       = []string{"", "known", "lock_", "lock__1_", "lock_a_9999999999999999999_b", "\xff", "known, known", strings.Repeat("_", 1000)}
	anyContentType = []string{"application/json", "application/json; charset=utf-8", "", ";", "text/plain"}
	anyBody        = []string{aMinute, "", "{}", "null", "[", `{"ttl_seconds":1e-300}`, `{"ttl_seconds":-0}`, `{"ttl_seconds":0.0011,"wait_seconds":1,"reason":"\ud800"}`, `{"ttl_seconds":1,"ttl_seconds":2}`, `{"TTL_SECONDS":1}`, "\xff", strings.Repeat("[", 10000), strings.Repeat(" ", 20000)}
)

func TestRequestsOfAllKinds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(from []string) string { return from[random.IntN(len(from))] }
	for range 3000 {
		body := pick(anyBody)
		if random.IntN(3) == 0 && body != "" { // A body that is cut off.
			body = body[:random.IntN(len(body))]
		}
		check(t, pick(anyMethod), pick(anyPath), pick(anyToken), pick(anyContentType), body)
	}
}

func FuzzRequests(f *testing.F) {
	for number := range 10 {
		f.Add(anyMethod[number%len(anyMethod)], anyPath[number%len(anyPath)], anyToken[number%len(anyToken)], anyContentType[number%len(anyContentType)], anyBody[number%len(anyBody)])
	}
	f.Fuzz(check)
}
