package rest_test

import (
	"flag"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// seeds are requests from which others are made: method, path, headers of a line each, body.
var seeds = [][4]string{
	{"POST", report, "", ofSixty},
	{"POST", report, "Idempotency-Key: 0123456789abcdef\nAccept: */*", `{"ttl_seconds":0.5,"reason":"r","function":"f","wait_seconds":0}`},
	{"POST", report, "Content-Type: application/json; charset=utf-8", `{"ttl_seconds":1e3,"holder_ref":{"api_version":"v1","kind":"Pod","name":"p","uid":"u"},"release_delay_seconds":1}`},
	{"PUT", report + "?function=f", "X-Lock-Token: TOKEN\nIf-Match: \"1\", W/\"2\"", ofSixty},
	{"DELETE", report, "X-Lock-Token: TOKEN\nIf-Match: *", ""},
	{"DELETE", report + "?force=true&reason=r", "", ""},
	{"GET", report + "?function=%C3%BC", "If-None-Match: \"1\"\nAccept: application/json;q=0.5, */*;q=0.1", ""},
	{"HEAD", report, "", ""},
	{"GET", allLocks + "?limit=5&prefix=a&holder=alice&continue=YQ", "", ""},
	{"GET", allLocks + "/a%2Fb%00%FF", "Last-Event-ID: 5", ""},
	{"OPTIONS", "/v1/namespaces/-/locks/..", "Origin: null", "\xff"},
}

func FuzzRequests(f *testing.F) {
	for _, seed := range seeds {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	served := newFixture(f)
	f.Fuzz(func(t *testing.T, method, path, headers, body string) {
		served.t = t
		served.throw(method, path, headers, body)
	})
}

// throw sends any request. No answer may be the service's fault, each has to be valid by the document, and
// a lock may be left only by an acquire that has succeeded.
func (f *fixture) throw(method, path, headers, body string) {
	f.t.Helper()
	target, err := url.ParseRequestURI(path)
	if err != nil || strings.Contains(target.RawQuery, "watch") || method == "" || strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return // The server does not pass it on, or the answer is a stream.
	}
	token := f.acquire(report, ofSixty, "User", "fuzzer")
	held := len(f.left())
	request := httptest.NewRequestWithContext(f.t.Context(), method, "/", strings.NewReader(body))
	request.URL, request.RequestURI = target, path
	request.Header.Set("Content-Type", "application/json")
	for line := range strings.SplitSeq(strings.ReplaceAll(headers, "TOKEN", token), "\n") {
		if name, value, ok := strings.Cut(line, ": "); ok && !strings.ContainsAny(line, "\r\x00") {
			request.Header.Add(name, value)
		}
	}
	got := f.send(request, body)
	if got.status >= 500 || got.status < 200 {
		f.t.Errorf("%s %s %q %q: status %d %s", method, path, headers, body, got.status, got.body)
	}
	grown := len(f.left()) - held
	if grown > 0 && (method != http.MethodPost || got.status != http.StatusCreated) {
		f.t.Errorf("%s %s %q %q: status %d has left a lock", method, path, headers, body, got.status)
	}
	for _, each := range f.locks.All() {
		_ = f.locks.ForceRelease(f.t.Context(), each.Namespace, each.Spec.FullKey(), "") // It may have expired.
	}
	f.clock.Step(time.Second)
	f.locks.Calls()
	f.log.Reset()
}

var thrown = flag.Int("requests", 1000, "how many requests TestRequestsOfAllKinds sends")

// pieces are what requests are put together from.
var pieces = []string{
	"%2F", "%2f", "/", "//", "..", "%2e%2e", ".", "%", "%zz", "%00", "%FF", "ü", "%C3%BC", "u%CC%88", "?", "&", "=", "function=", "limit=", "force=true", "reason=x", ":",
	";", ",", "\"", "*", "W/", "{", "}", "[", "]", "null", "true", "1e309", "-0", "0.001", "86400", "\\u0000", "\\ud800", "lock_", "TOKEN", "a", "",
	`"ttl_seconds":`, `"wait_seconds":0`, `"reason":""`, `"function":"f"`, "application/json", "Accept: ", "If-Match: ", "Idempotency-Key: ", "X-Lock-Token: ", "Content-Type: ", "\n",
	"Content-Encoding: gzip", "User: nobody", "User: bob", "Sec-Fetch-Site: cross-site", strings.Repeat("k", 600),
}

// TestRequestsOfAllKinds sends requests that are made of others by chance, from a seed.
// "-requests=1000000" sends more of them.
func TestRequestsOfAllKinds(t *testing.T) {
	random := rand.New(rand.NewPCG(13, 4)) //nolint:gosec // The same requests each time.
	f := newFixture(t)
	methods := []string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "LOCK"}
	mutate := func(text string) string {
		for range random.IntN(4) {
			at := random.IntN(len(text) + 1)
			end := min(len(text), at+random.IntN(6))
			text = text[:at] + pieces[random.IntN(len(pieces))] + text[end:]
		}
		return text
	}
	for range *thrown {
		seed := seeds[random.IntN(len(seeds))]
		method := seed[0]
		if random.IntN(10) == 0 {
			method = methods[random.IntN(len(methods))]
		}
		path := seed[1]
		if random.IntN(2) == 0 {
			path = allLocks + "/" + mutate(strings.TrimPrefix(path, allLocks+"/"))
		}
		f.throw(method, path, mutate(seed[2]), mutate(seed[3]))
		if t.Failed() {
			t.FailNow()
		}
	}
}
