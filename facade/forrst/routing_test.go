package forrst_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/forward"
	"forrst.dev/lock-operator/facade/forrst/routes"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// routingTo returns a change of the configuration by which functions "r.…" run at the URL,
// and time passes: services take some.
func routingTo(tb testing.TB, url string, timeout time.Duration, transport http.RoundTripper) func(*testfacade.Settings) {
	tb.Helper()
	table, err := routes.Parse(fmt.Appendf(nil, "routes:\n- functions: ['r.*']\n  url: %s\n  timeout: %s\n", url, timeout))
	if err != nil {
		tb.Fatal(err)
	}
	client := forward.NewClient(transport)
	tb.Cleanup(client.Close)
	return func(config *testfacade.Settings) {
		config.Routing = &forrst.Routing{Routes: table, Client: client}
		config.Clock = clock.RealClock{}
	}
}

// service is what functions are routed to.
type service struct {
	*httptest.Server

	// writing is held to set what follows: a call that timed out may still be arriving
	// when the next one does.
	writing sync.Mutex
	// header and body are those of the last request.
	header http.Header
	body   string
}

func newService(tb testing.TB, answer http.HandlerFunc) *service {
	tb.Helper()
	s := &service{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost {
			tb.Errorf("%s, %v", r.Method, err)
		}
		s.writing.Lock()
		s.header, s.body = r.Header, string(body)
		s.writing.Unlock()
		answer(w, r)
	}))
	tb.Cleanup(s.Close)
	return s
}

// says answers with members of an envelope.
func says(members string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"a-1",%s}`, members)
	}
}

func newRouted(t *testing.T, answer http.HandlerFunc) (*fixture, *service) {
	t.Helper()
	s := newService(t, answer)
	return newFixtureWith(t, routingTo(t, s.URL, time.Minute, nil)), s
}

func TestRequestsArePassedOn(t *testing.T) {
	const head = `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"a-1","call":{"function":"r.f"`
	for name, test := range map[string]struct{ request, want string }{
		"as little as there may be": {head + `}}`, head + `},"context":{"caller":"lock-operator"}}`},
		"what is not understood": {
			`{"protocol":{"name":"forrst","version":"0.2.0"},"id":"a-1","call":{"function":"r.f","version":"2.0.0-rc.1","arguments": {"n":1.000e400, "<":"\u00e9"} },` +
				`"context":{"caller":"shop","tenant_id":7.0, "x":[ ]},"extensions":[{"urn":"urn:acme:forrst:ext:x","options":{"a":-0}},{"urn":"urn:forrst:ext:idempotency","options":[]}]}`,
			head + `,"version":"2.0.0-rc.1","arguments":{"n":1.000e400, "<":"\u00e9"}},"context":{"tenant_id":7.0,"x":[ ],"caller":"lock-operator"},` +
				`"extensions":[{"urn":"urn:acme:forrst:ext:x","options":{"a":-0}},{"urn":"urn:forrst:ext:idempotency","options":{}}]}`,
		},
		"what is done here": {
			head + `},"extensions":[` + locked(`{"key":"k",`+ttl+`}`) + `,{"urn":"urn:forrst:ext:retry"},{"urn":"urn:forrst:ext:cancellation","options":{"token":"t"}},{"urn":"u"}]}`,
			head + `},"context":{"caller":"lock-operator"},"extensions":[{"urn":"u"}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, s := newRouted(t, says(`"result":1`))
			if got := f.post(test.request); got.status != 200 {
				t.Errorf("got %s", got.body)
			}
			if diff := cmp.Diff(test.want, s.body); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := s.header.Get("Content-Type"); got != "application/json" {
				t.Errorf("content type %q", got)
			}
			f.wantHeld()
		})
	}
}

func TestTracesGoOn(t *testing.T) {
	f, s := newRouted(t, says(`"result":1,"extensions":[{"urn":"urn:forrst:ext:tracing","data":{"span_id":"theirs"}}]`))
	const id = "0af7651916cd43dd8448eb211c80319c"
	got := f.post(envelopeWith("r.f", "", `{"urn":"urn:forrst:ext:tracing","options":{"trace_id":"`+id+`","span_id":"b7ad6b7169203331","baggage":{"a": 1.0}}}`))
	if len(got.Extensions) != 1 {
		t.Fatalf("got %s", got.body)
	}
	var own struct {
		SpanID string `json:"span_id"`
	}
	sent := struct {
		Extensions []struct {
			Options struct {
				TraceID      string          `json:"trace_id"`
				SpanID       string          `json:"span_id"`
				ParentSpanID string          `json:"parent_span_id"`
				Baggage      json.RawMessage `json:"baggage"`
			} `json:"options"`
		} `json:"extensions"`
	}{}
	if err := json.Unmarshal(got.Extensions[0].Data, &own); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(s.body), &sent); err != nil || len(sent.Extensions) != 1 {
		t.Fatalf("%v in %s", err, s.body)
	}
	options := sent.Extensions[0].Options
	if options.TraceID != id || options.ParentSpanID != own.SpanID || options.SpanID == own.SpanID || len(options.SpanID) != 16 || string(options.Baggage) != `{"a":1.0}` {
		t.Errorf("the service got %s, the caller %s", s.body, got.body)
	}
	for name, want := range map[string]string{
		"traceparent": "00-" + id + "-" + own.SpanID + "-01", "X-Forrst-Trace-Id": id,
		"X-Forrst-Span-Id": options.SpanID, "X-Forrst-Parent-Span-Id": own.SpanID,
	} {
		if value := s.header.Get(name); value != want {
			t.Errorf("%s is %q, want %q", name, value, want)
		}
	}
}

func TestHeadersOfTracesGoOn(t *testing.T) {
	f, s := newRouted(t, says(`"result":1`))
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, forrst.Path, strings.NewReader(envelopeWith("r.f", "", "")))
	request.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
	request.Header.Set("tracestate", "a=b")
	request.Header.Set("Authorization", "Bearer secret")
	f.serve(request)
	if got := s.header.Get("traceparent"); !strings.HasPrefix(got, "00-0af7651916cd43dd8448eb211c80319c-") || !strings.HasSuffix(got, "-00") ||
		strings.Contains(got, "b7ad6b7169203331") || s.header.Get("tracestate") != "a=b" {
		t.Errorf("the service got %v", s.header)
	}
	if s.header.Get("Authorization") != "" || strings.Contains(s.body, "tracing") {
		t.Errorf("the service got %v, %s", s.header, s.body)
	}
}

func TestRestOfDeadlinesIsPassedOn(t *testing.T) {
	for given, want := range map[string]float64{`{"value":20,"unit":"second"}`: 20_000, `{"value":1,"unit":"hour"}`: 60_000} {
		f, s := newRouted(t, says(`"result":1,"extensions":[{"urn":"urn:forrst:ext:deadline","data":{}}]`))
		got := f.post(envelopeWith("r.f", "", `{"urn":"urn:forrst:ext:deadline","options":`+given+`}`))
		var sent envelope.Request
		var rest struct {
			Value float64 `json:"value"`
			Unit  string  `json:"unit"`
		}
		if err := json.Unmarshal([]byte(s.body), &sent); err != nil || len(sent.Extensions) != 1 {
			t.Fatalf("%v in %s", err, s.body)
		}
		if err := json.Unmarshal(sent.Extensions[0].Options, &rest); err != nil || rest.Unit != "millisecond" || rest.Value > want || rest.Value < want-10_000 {
			t.Errorf("%s: the service got %s", given, s.body)
		}
		if len(got.Extensions) != 1 || !strings.Contains(got.body, "elapsed") {
			t.Errorf("%s: the caller got %s", given, got.body)
		}
	}
}

func TestAnswersAreMerged(t *testing.T) {
	const frame = `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"a-1",`
	for name, test := range map[string]struct {
		says, want string
		status     int
	}{
		"a result":     {`"result":{"n":1.000e400,"<":"\u00e9","b":[]}`, frame + `"result":{"n":1.000e400,"<":"\u00e9","b":[]}}`, 200},
		"null":         {`"result":null`, frame + `"result":null}`, 200},
		"meta":         {`"result":1,"meta":{"node":"n-7","x":1.0}`, frame + `"result":1,"meta":{"node":"n-7","x":1.0}}`, 200},
		"an entry":     {`"result":1,"extensions":[{"urn":"urn:acme:forrst:ext:x","data":{"n":1.0}},{"urn":"v"}]`, frame + `"result":1,"extensions":[{"urn":"urn:acme:forrst:ext:x","data":{"n":1.0}},{"urn":"v"}]}`, 200},
		"own entries":  {`"result":1,"extensions":[{"urn":"urn:forrst:ext:atomicLock","data":{}},{"urn":"urn:k8s:forrst:ext:fencing","data":{"token":9}},{"urn":"urn:k8s:forrst:ext:lock-lost"}]`, frame + `"result":1}`, 200},
		"advice":       {`"errors":[{"code":"NOT_FOUND","message":"m"}],"extensions":[{"urn":"urn:forrst:ext:retry","data":{"allowed":true}}]`, frame + `"result":null,"errors":[{"code":"NOT_FOUND","message":"m"}],"extensions":[{"urn":"urn:forrst:ext:retry","data":{"allowed":true}}]}`, 404},
		"an error":     {`"result":null,"errors":[{"code":"ACME_BROKE","message":"é <","source":{"pointer":"/call/arguments/n"},"details":{"n":1.0}}]`, frame + `"result":null,"errors":[{"code":"ACME_BROKE","message":"é <","source":{"pointer":"/call/arguments/n"},"details":{"n":1.0}}]}`, 400},
		"two errors":   {`"errors":[{"code":"NOT_FOUND","message":"m"},{"code":"GONE","message":"m"}]`, frame + `"result":null,"errors":[{"code":"NOT_FOUND","message":"m"},{"code":"GONE","message":"m"}]}`, 400},
		"its function": {`"errors":[{"code":"FUNCTION_NOT_FOUND","message":"m"}]`, frame + `"result":null,"errors":[{"code":"FUNCTION_NOT_FOUND","message":"m"}]}`, 404},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := newRouted(t, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusTeapot) // An envelope counts, whatever the status is.
				says(test.says)(w, r)
			})
			got := f.post(envelopeWith("r.f", "", ""))
			if diff := cmp.Diff(test.want, got.body); diff != "" || got.status != test.status {
				t.Errorf("status %d, (-want +got):\n%s", got.status, diff)
			}
		})
	}
}

func TestPlacesInExtensionsAreThoseOfTheCaller(t *testing.T) {
	f, _ := newRouted(t, says(`"errors":[{"code":"INVALID_ARGUMENTS","message":"m","source":{"pointer":"/extensions/1/options/x"}},`+
		`{"code":"EXTENSION_NOT_APPLICABLE","message":"m","source":{"pointer":"/extensions/0"}},{"code":"INVALID_REQUEST","message":"m","source":{"pointer":"/extensions/9"}}]`))
	got := f.post(envelopeWith("r.f", "", `{"urn":"urn:forrst:ext:retry"},{"urn":"a"},`+locked(`{"key":"k",`+ttl+`}`)+`,{"urn":"b"}`))
	f.wantProblems(got, 400, "INVALID_ARGUMENTS /extensions/3/options/x", "EXTENSION_NOT_APPLICABLE /extensions/1", "INVALID_REQUEST /extensions/9")
	f.wantHeld()
}

func TestErrorsBeforeTheIDAreErrorsOfTheService(t *testing.T) {
	f, _ := newRouted(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":null,"errors":[{"code":"RATE_LIMITED","message":"m","details":{"retry_after":{"value":1500,"unit":"millisecond"}}}]}`)
	})
	got := f.post(envelopeWith("r.f", "", locked(`{"key":"k",`+ttl+`}`)))
	f.wantProblems(got, 429, "RATE_LIMITED")
	if after := got.header.Get("Retry-After"); after != "2" || *got.ID != "a-1" {
		t.Errorf("Retry-After %q in %s", after, got.body)
	}
	f.wantHeld()
}

func TestWhatIsServedHereOrReservedIsNotRouted(t *testing.T) {
	s := newService(t, says(`"result":"elsewhere"`))
	table, err := routes.Parse([]byte("routes:\n- functions: ['*']\n  url: " + s.URL))
	if err != nil {
		t.Fatal(err)
	}
	client := forward.NewClient(nil)
	t.Cleanup(client.Close)
	f := newFixtureWith(t, func(config *testfacade.Settings) {
		config.Routing = &forrst.Routing{Routes: table, Client: client}
	}, function("own", result(`"here"`)))
	got := map[string]string{}
	for _, name := range []string{"own", "other", "forrst.nothing", "urn:cline:forrst:fn:nothing", "urn:k8s:forrst:fn:nothing"} {
		answer := f.post(envelopeWith(name, "", ""))
		got[name] = string(answer.Result)
		if answer.status == 404 {
			got[name] = "404"
		}
	}
	want := map[string]string{
		"own": `"here"`, "other": `"elsewhere"`,
		"forrst.nothing": "404", "urn:cline:forrst:fn:nothing": "404", "urn:k8s:forrst:fn:nothing": "404",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
