package rest_test

import (
	"context"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"golang.org/x/text/unicode/norm"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// seeds are requests from which others are made: method, path, headers of a line each, body. In headers
// TOKEN is the lock token of the lock, whose holder is fuzzer, TAG its entity tag, and ENDED the token of a
// grant that has ended.
var seeds = [][4]string{
	{"POST", report, "", ofSixty},
	{"POST", report, "Idempotency-Key: 0123456789abcdef\nAccept: */*", `{"ttl_seconds":0.5,"reason":"r","function":"f","wait_seconds":0}`},
	{"POST", report, "Content-Type: application/json; charset=utf-8", `{"ttl_seconds":1e3,"holder_ref":{"api_version":"v1","kind":"Pod","name":"p","uid":"u"},"release_delay_seconds":1}`},
	{"POST", report, "User: bob", `{"ttl_seconds":60,"wait_seconds":0.5}`},
	{"POST", allLocks + "/u%CC%88", "Idempotency-Key: fedcba9876543210", `{"ttl_seconds":60,"reason":"\u00fc\ud83d\udd12"}`},
	{"POST", report, "", `{"ttl_seconds":60,"reason":"` + strings.Repeat("k", 1<<16) + `"}`},
	{"PUT", report, "X-Lock-Token: TOKEN\nUser: fuzzer\nIf-Match: \"1\", TAG", ofSixty},
	{"PUT", report, "X-Lock-Token: ENDED\nUser: fuzzer", ofSixty},
	{"PUT", report + "?function=f", "X-Lock-Token: TOKEN\nIf-Match: \"1\", W/\"2\"", ofSixty},
	{"DELETE", report, "X-Lock-Token: TOKEN\nIf-Match: TAG\nUser: fuzzer", ""},
	{"PUT", report, "X-Lock-Token: TOKEN\nIf-Match: \"0\"\nUser: fuzzer", ofSixty},
	{"DELETE", report, "X-Lock-Token: TOKEN\nIf-Match: *", ""},
	{"DELETE", report + "?force=true&reason=r", "", ""},
	{"GET", report + "?function=%C3%BC", "If-None-Match: \"1\"\nAccept: application/json;q=0.5, */*;q=0.1", ""},
	{"GET", report, "If-None-Match: TAG", ""},
	{"HEAD", report, "", ""},
	{"GET", allLocks + "?limit=5&prefix=a&holder=alice&continue=YQ", "", ""},
	{"GET", allLocks + "/a%2Fb%00%FF", "Last-Event-ID: 5", ""},
	{"GET", report + "?watch=true", "Accept: text/event-stream\nLast-Event-ID: 1", ""},
	{"GET", allLocks + "?watch=true&prefix=billing", "Accept: text/event-stream", ""},
	{"GET", allLocks, "User: nobody", ""},
	{"POST", report, "Content-Encoding: gzip", ofSixty},
	{"POST", acquisitions, "Idempotency-Key: 0123456789abcdef", `{"keys":["billing:report","b"],"ttl_seconds":60,"wait_seconds":0.5,"together":"strict"}`},
	{"POST", acquisitions, "User: bob", `{"keys":["a","b\u0308",""],"ttl_seconds":1e3,"function":"f","priority":1}`},
	{"PUT", acquisitions + "?key=billing:report", "X-Lock-Token: TOKEN\nUser: fuzzer", ofSixty},
	{"DELETE", acquisitions + "?key=b&key=a&function=f", "X-Lock-Token: locks_zfi4aqmzn43ax3ab45bx3b22u2fvtfyu_4-5_ilysd3y33fcdm\nIf-Match: *", ""},
	{"OPTIONS", "/v1/namespaces/-/locks/..", "Origin: null", "\xff"},
}

// thrower throws requests at a façade, and counts the answers by their status.
type thrower struct {
	*fixture
	ended    string
	statuses map[int]int
	streams  int
}

func newThrower(tb testing.TB) *thrower {
	tb.Helper()
	f := newFixture(tb)
	ended := f.acquire(report, ofSixty, "User", "fuzzer")
	f.do(http.MethodDelete, report, "", "X-Lock-Token", ended, "User", "fuzzer").want(http.StatusNoContent)
	return &thrower{fixture: f, ended: ended, statuses: map[int]int{}}
}

func FuzzRequests(f *testing.F) {
	for _, seed := range seeds {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	served := newThrower(f)
	f.Fuzz(func(t *testing.T, method, path, headers, body string) {
		served.t = t
		served.throw(method, path, headers, body, false)
	})
}

// throw sends any request, and reports whether there is such a one. No answer may be the service's fault
// unless there is an outage, each has to be valid by the document, and a lock may be left only by an acquire
// that has succeeded.
func (f *thrower) throw(method, path, headers, body string, isOutage bool) bool {
	f.t.Helper()
	target, err := url.ParseRequestURI(path)
	if err != nil || method == "" || strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return false // The server does not pass it on.
	}
	token, tag := f.acquireAsFuzzer()
	before := f.held()
	request := httptest.NewRequestWithContext(f.t.Context(), method, "/", strings.NewReader(body))
	request.URL, request.RequestURI = target, path
	request.Header = headersOf(strings.NewReplacer("TOKEN", token, "TAG", tag, "ENDED", f.ended).Replace(headers))
	f.locks.SetUnavailable(isOutage)
	stop := func() {}
	if strings.Contains(target.RawQuery, "watch") || strings.Contains(body, "wait_seconds") {
		stop = f.passTime()
	}
	got := f.send(request, body)
	stop()
	f.locks.SetUnavailable(false)
	f.statuses[got.status]++
	if got.header.Get("Content-Type") == "text/event-stream" {
		f.streams++
	}
	isUnavailable := isOutage && got.status == http.StatusServiceUnavailable
	if got.status >= 500 && !isUnavailable || got.status < 200 {
		f.t.Errorf("%s %s %q %q: status %d %s", method, path, headers, body, got.status, got.body)
	}
	if f.held() > before && (method != http.MethodPost || got.status != http.StatusCreated) {
		f.t.Errorf("%s %s %q %q: status %d has left a lock", method, path, headers, body, got.status)
	}
	for _, each := range f.locks.All() {
		_ = f.locks.ForceRelease(f.t.Context(), each.Namespace, each.Spec.FullKey(), "") // It may have expired.
	}
	f.clock.Step(time.Second)
	f.locks.Calls()
	f.log.Reset()
	return true
}

// held counts the locks that are held. The clock may run on until a lock that an answer has to end has expired by itself.
func (f *thrower) held() (count int) {
	for _, each := range f.locks.All() {
		if each.Spec.ExpireTime.After(f.clock.Now()) {
			count++
		}
	}
	return count
}

// headersOf returns the headers of a line each.
func headersOf(text string) http.Header {
	headers := http.Header{"Content-Type": {"application/json"}}
	for line := range strings.SplitSeq(text, "\n") {
		if name, value, ok := strings.Cut(line, ": "); ok && !strings.ContainsAny(line, "\r\x00") {
			headers.Add(name, value)
		}
	}
	return headers
}

// acquireAsFuzzer returns the lock token and the entity tag of the lock. The contract is not asked, since each request
// would take twice the time.
func (f *thrower) acquireAsFuzzer() (token, tag string) {
	f.t.Helper()
	request := httptest.NewRequestWithContext(f.t.Context(), http.MethodPost, report, strings.NewReader(`{"ttl_seconds":3600}`)) // For longer than any wait.
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User", "fuzzer")
	recorder := httptest.NewRecorder()
	f.ServeHTTP(recorder, request)
	got := answer{f.t, recorder.Code, recorder.Header(), recorder.Body.String()}.want(http.StatusCreated)
	return got.lock().LockToken, got.header.Get("ETag")
}

// passTime lets time pass for calls that wait for it, until it is told to stop.
func (f *fixture) passTime() (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			if f.clock.HasWaiters() {
				f.clock.Step(50 * time.Millisecond)
			}
			runtime.Gosched()
		}
	}()
	return func() {
		cancel()
		<-stopped
	}
}

// podCallers are a Pod of the namespace, whatever a request says.
type podCallers struct{ callers }

func (*podCallers) Authenticate(*http.Request) (user.Info, error) {
	return &user.DefaultInfo{Name: "system:serviceaccount:payments:worker", Extra: map[string][]string{
		serviceaccount.PodNameKey: {"worker-0"}, serviceaccount.PodUIDKey: {"1"},
	}}, nil
}

// TestWhatTheDocumentAcceptsIsAccepted draws keys, headers and bodies from the schemas of the document. The lock is free, and the
// caller may do everything. It is a Pod, with which a lock ends that has a delay and names no object.
func TestWhatTheDocumentAcceptsIsAccepted(t *testing.T) {
	f := newFixture(t, func(s *testfacade.Settings) { s.Access = &podCallers{} })
	contract, draw := theContract(t), drawer{rand.New(rand.NewPCG(19, *thrownSeed))}
	post := contract.document.Paths.Value("/v1/namespaces/{namespace}/locks/{key}").Post
	parameter := func(in, name string) *openapi3.Schema { return post.Parameters.GetByInAndName(in, name).Schema.Value }
	body := func(schema string) string {
		t.Helper()
		drawn := draw.value(contract.document.Components.Schemas[schema].Value)
		if err := contract.checkSchema(schema, []byte(drawn)); err != nil {
			t.Fatalf("drew %s: %v", drawn, err)
		}
		return drawn
	}
	for range *thrown / 4 {
		key, acquisition, renewal := draw.text(parameter("path", "key")), body("Acquisition"), body("Renewal")
		var members struct{ Function string }
		if err := json.Unmarshal([]byte(acquisition), &members); err != nil {
			t.Fatal(err)
		}
		if max(len(norm.NFC.String(key)), len(norm.NFC.String(members.Function))) > v1alpha1.MaxKeyBytes || key == "/" {
			continue // The document says it in words: JSON Schema counts characters, and a slash alone cannot be named.
		}
		var headers []string
		if draw.IntN(2) == 0 {
			headers = []string{"Idempotency-Key", draw.text(parameter("header", "Idempotency-Key"))}
		}
		path := wire.LockPath("payments", key, "")
		granted := f.do(http.MethodPost, path, acquisition, headers...)
		if granted.status != http.StatusCreated {
			t.Fatalf("POST %q %q %s: status %d: %s", path, headers, acquisition, granted.status, granted.body)
		}
		path = wire.LockPath("payments", key, members.Function)
		renewed := f.do(http.MethodPut, path, renewal, "X-Lock-Token", granted.lock().LockToken)
		if renewed.status != http.StatusOK {
			t.Fatalf("PUT %q %s: status %d: %s", path, renewal, renewed.status, renewed.body)
		}
		f.do(http.MethodDelete, path, "", "X-Lock-Token", granted.lock().LockToken).want(http.StatusNoContent)
		f.log.Reset()
	}
}

var (
	thrown     = flag.Int("requests", 1000, "how many requests TestRequestsOfAllKinds sends")
	thrownSeed = flag.Uint64("seed", 4, "the number that the requests follow from")
)

// pieces are what requests are put together from.
var pieces = []string{
	"%2F", "%2f", "/", "//", "..", "%2e%2e", ".", "%", "%zz", "%00", "%FF", "ü", "%C3%BC", "u%CC%88", "?", "&", "=", "function=", "limit=", "force=true", "reason=x", ":",
	";", ",", "\"", "*", "W/", "{", "}", "[", "]", "null", "true", "1e309", "-0", "0.001", "86400", "\\u0000", "\\ud800", "lock_", "TOKEN", "TAG", "ENDED", "a", "",
	"watch=true", "watch=", "prefix=", "continue=", "\u2028", "\U0001F512", "%F0%9F%94%92",
	`"ttl_seconds":`, `"wait_seconds":0`, `"reason":""`, `"function":"f"`, "application/json", "text/event-stream", "Accept: ", "If-Match: ", "If-None-Match: ", "Idempotency-Key: ",
	"X-Lock-Token: ", "Content-Type: ", "Last-Event-ID: ", "18446744073709551616", "\n",
	"Content-Encoding: gzip", "User: nobody", "User: bob", "User: fuzzer", "Sec-Fetch-Site: cross-site", strings.Repeat("k", 600),
}

// TestRequestsOfAllKinds sends requests that are made of others by chance, from a seed.
// "-requests=1000000" sends more of them, "-seed" others.
func TestRequestsOfAllKinds(t *testing.T) {
	random := rand.New(rand.NewPCG(13, *thrownSeed))
	f := newThrower(t)
	methods := []string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "LOCK"}
	mutate := func(text string) string {
		for range random.IntN(4) {
			at := random.IntN(len(text) + 1)
			end := min(len(text), at+random.IntN(6))
			text = text[:at] + pieces[random.IntN(len(pieces))] + text[end:]
		}
		return text
	}
	for sent := 0; sent < *thrown && !t.Failed(); {
		seed := seeds[random.IntN(len(seeds))]
		method := seed[0]
		if random.IntN(10) == 0 {
			method = methods[random.IntN(len(methods))]
		}
		path := seed[1]
		switch random.IntN(20) {
		case 0:
			path = mutate(path)
		case 1, 2, 3, 4, 5, 6, 7, 8, 9:
			path = allLocks + mutate(strings.TrimPrefix(path, allLocks))
		}
		if f.throw(method, path, mutate(seed[2]), mutate(seed[3]), random.IntN(50) == 0) {
			sent++
		}
	}
	t.Logf("%d streams; answers by status: %v", f.streams, f.statuses)
	for _, status := range []int{200, 201, 204, 304, 400, 401, 403, 404, 405, 406, 410, 412, 413, 415, 423, 503} {
		if f.statuses[status] == 0 {
			t.Errorf("no answer has status %d", status)
		}
	}
	if f.streams == 0 {
		t.Error("no answer is a stream")
	}
}
