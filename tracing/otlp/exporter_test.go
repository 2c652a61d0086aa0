package otlp_test

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
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/test/support/collector"
	"forrst.dev/lock-operator/test/support/testfacade"
	"forrst.dev/lock-operator/tracing/otlp"
)

const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	parentID    = "b7ad6b7169203331"
	traceparent = "00-" + traceID + "-" + parentID + "-01"
	locksPath   = "/v1/namespaces/payments/locks/"
)

// clearEnvironment lets no variable of the machine count.
func clearEnvironment(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
		"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_TRACES_SAMPLER", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME",
	} {
		t.Setenv(name, "")
	}
}

// fixture is a façade on locks in memory, whose traces are sent.
type fixture struct {
	t        *testing.T
	url      string
	exporter *otlp.Exporter
	served   *httptest.Server
	log      *logged
}

type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) add(_, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

func (l *logged) matching(part string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}

func newFixture(t *testing.T, clock *clocktesting.FakeClock) *fixture {
	t.Helper()
	f := &fixture{t: t, log: &logged{}}
	options := otlp.Options{Version: "1.2.3", Logger: funcr.New(f.log.add, funcr.Options{})}
	if clock != nil {
		options.Clock = clock
	}
	f.exporter = otlp.Start(t.Context(), options)
	handler, err := testfacade.New(testfacade.Settings{
		Locks: locktest.New(), Namespace: "payments", Server: server.Options{Tracer: f.exporter.Tracer()},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.served = httptest.NewServer(handler)
	f.url = f.served.URL
	t.Cleanup(f.stop)
	return f
}

// stop waits for the calls, and sends what is left.
func (f *fixture) stop() {
	f.served.Close()
	f.exporter.Stop(context.Background())
}

// send sends a request, whose header are pairs.
func (f *fixture) send(method, path, body string, header ...string) (int, []byte) {
	f.t.Helper()
	request, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	for pair := range slices.Chunk(header, 2) {
		request.Header.Set(pair[0], pair[1])
	}
	response, err := f.served.Client().Do(request)
	if err != nil {
		f.t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return response.StatusCode, answer
}

// collecting starts a collector that the environment names.
func collecting(t *testing.T, protocol string) *collector.Collector {
	t.Helper()
	clearEnvironment(t)
	received, err := collector.Start(t.Context(), protocol)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(received.Stop)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.Endpoint)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
	return received
}

func TestSpansReachTheCollector(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(protocol, func(t *testing.T) {
			received := collecting(t, protocol)
			t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.version=2")
			t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=locks")
			f := newFixture(t, nil)
			status, _ := f.send(http.MethodPost, locksPath+"billing:report", `{"ttl_seconds":60}`, "Traceparent", traceparent, "Tracestate", "a=1")
			if status != http.StatusCreated {
				t.Fatal(status)
			}
			f.stop()
			spans := received.Spans()
			if len(spans) != 1 { // Without identities, no review is slow.
				t.Fatalf("%d spans", len(spans))
			}
			call := spans[0]
			if hex(call.GetTraceId()) != traceID || hex(call.GetParentSpanId()) != parentID || call.GetTraceState() != "a=1" {
				t.Errorf("the call is not a part of its caller's trace: %v", call)
			}
			expectTexts(t, call.Text, map[string]string{
				"lock_operator.door": "rest", "lock_operator.operation": "acquire", "lock_operator.outcome": "OK", "lock_operator.namespace": "payments",
				"lock_operator.key": "billing:report", "http.request.method": "POST", "http.response.status_code": "201", "lock_operator.fencing_token": "1",
			})
			expectTexts(t, func(name string) string { return call.Resource[name] }, map[string]string{
				"service.name": "lock-operator", "service.version": "2", "deployment.environment.name": "test",
			})
			if call.GetName() != "rest acquire" || call.GetStatus().GetCode() != 0 || received.Header("x-tenant")+received.Header("X-Tenant") != "locks" {
				t.Errorf("%v", call)
			}
		})
	}
}

func expectTexts(t *testing.T, of func(string) string, wanted map[string]string) {
	t.Helper()
	for name, want := range wanted {
		if got := of(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func hex(id []byte) string {
	const digits = "0123456789abcdef"
	var text strings.Builder
	for _, char := range id {
		text.WriteByte(digits[char>>4])
		text.WriteByte(digits[char&0xf])
	}
	return text.String()
}

// forrst returns an envelope with the tracing extension, unless its options are empty.
func forrst(function, arguments, options string) string {
	extensions := ""
	if options != "" {
		extensions = `,"extensions":[{"urn":"urn:forrst:ext:tracing","options":` + options + `}]`
	}
	return `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","call":{"function":"` + function + `","version":"1.0.0","arguments":` + arguments + `}` + extensions + `}`
}

func TestTracesOfTheForrstDoor(t *testing.T) {
	const ping = "forrst.ping"
	type cases = map[string]struct {
		options string
		header  []string
		// trace and parent are what the span must have; empty trace means a new one.
		trace, parent string
		named         string
	}
	for name, test := range (cases{
		"extension": {options: `{"trace_id":"` + traceID + `","span_id":"` + parentID + `"}`, trace: traceID, parent: parentID},
		"extension before headers": {
			options: `{"trace_id":"` + traceID + `","span_id":"` + parentID + `"}`,
			header:  []string{"Traceparent", "00-" + strings.Repeat("1", 32) + "-" + strings.Repeat("2", 16) + "-01"}, trace: traceID, parent: parentID,
		},
		"extension without a span": {options: `{"trace_id":"` + traceID + `"}`, trace: traceID},
		"UUID":                     {options: `{"trace_id":"0AF76519-16cd-43dd-8448-eb211c80319c"}`, trace: traceID},
		"any text":                 {options: `{"trace_id":"t-1","span_id":"` + parentID + `"}`, named: "t-1"},
		"headers of Forrst":        {header: []string{"X-Forrst-Trace-Id", traceID, "X-Forrst-Span-Id", parentID}, trace: traceID, parent: parentID},
		"traceparent":              {header: []string{"Traceparent", traceparent}, trace: traceID, parent: parentID},
		"extension and traceparent": {
			options: `{"trace_id":"` + traceID + `"}`, header: []string{"Traceparent", traceparent}, trace: traceID, parent: parentID,
		},
		"none": {},
	}) {
		t.Run(name, func(t *testing.T) {
			received := collecting(t, "http/protobuf")
			f := newFixture(t, nil)
			status, body := f.send(http.MethodPost, "/forrst", forrst(ping, "{}", test.options), test.header...)
			if status != http.StatusOK {
				t.Fatalf("%d %s", status, body)
			}
			f.stop()
			spans := received.Spans()
			if len(spans) != 1 {
				t.Fatalf("%d spans", len(spans))
			}
			call := spans[0]
			if test.trace != "" && hex(call.GetTraceId()) != test.trace || hex(call.GetParentSpanId()) != test.parent || call.Text("lock_operator.forrst_trace_id") != test.named {
				t.Errorf("%v", call)
			}
			if call.GetName() != "forrst ping" || call.Text("lock_operator.function") != ping {
				t.Errorf("%v", call)
			}
			var answer struct {
				Extensions []struct {
					Data struct {
						SpanID string `json:"span_id"`
					} `json:"data"`
				} `json:"extensions"`
			}
			if err := json.Unmarshal(body, &answer); err != nil {
				t.Fatal(err)
			}
			if test.options != "" && answer.Extensions[0].Data.SpanID != hex(call.GetSpanId()) {
				t.Errorf("the answer names the span %q, sent was %x", answer.Extensions[0].Data.SpanID, call.GetSpanId())
			}
		})
	}
}

func TestRefusedCallsAreFailures(t *testing.T) {
	received := collecting(t, "grpc")
	f := newFixture(t, nil)
	f.send(http.MethodPost, locksPath+"k", `{"ttl_seconds":60}`)
	f.send(http.MethodPost, locksPath+"k", `{"ttl_seconds":60}`)                              // held
	f.send(http.MethodPatch, locksPath+"k", "")                                               // no such method
	f.send(http.MethodPost, "/forrst", "{")                                                   // no JSON
	f.send(http.MethodPost, "/forrst", forrst("forrst.nothing", "{}", ""))                    // no such function
	f.send(http.MethodPost, "/forrst", forrst("forrst.locks.release", `{"key":"other"}`, "")) // no owner
	f.send(http.MethodGet, "/forrst", "")
	f.stop()
	got := map[string]string{}
	for _, span := range received.Spans() {
		if span.GetKind() == 2 { // a server's
			got[span.GetName()+" "+span.Text("lock_operator.outcome")] = span.GetStatus().GetCode().String() + " " + span.Text("error.type") + " " + span.Text("lock_operator.key")
		}
	}
	want := map[string]string{
		"rest acquire OK": "STATUS_CODE_UNSET  k", "rest acquire lock-held": "STATUS_CODE_ERROR lock-held k",
		"rest unknown method-not-allowed": "STATUS_CODE_ERROR method-not-allowed ", "forrst unknown PARSE_ERROR": "STATUS_CODE_ERROR PARSE_ERROR ",
		"forrst unknown FUNCTION_NOT_FOUND": "STATUS_CODE_ERROR FUNCTION_NOT_FOUND ", "forrst release INVALID_ARGUMENTS": "STATUS_CODE_ERROR INVALID_ARGUMENTS other",
		"forrst unknown INVALID_REQUEST": "STATUS_CODE_ERROR INVALID_REQUEST ",
	}
	for name, status := range want {
		if got[name] != status {
			t.Errorf("%s: %q, want %q (all: %v)", name, got[name], status, got)
		}
	}
}

// One span with a text that cannot be sent would keep those of other callers from being sent, too.
func TestTextsOfCallersCannotStopTheSending(t *testing.T) {
	received := collecting(t, "grpc")
	f := newFixture(t, nil)
	f.send(http.MethodPost, locksPath+"%FF%FE", `{"ttl_seconds":60}`)
	f.send(http.MethodPost, locksPath+strings.Repeat("a", 10_000), `{"ttl_seconds":60}`)
	f.send("B\x2aR", "/forrst", "{}")
	f.send(http.MethodPost, "/forrst", forrst("forrst.ping", "{}", `{"trace_id":"`+strings.Repeat("z", 100_000)+`"}`), "Tracestate", "\xff=\xff")
	f.stop()
	if spans := received.Spans(); len(spans) != 4 {
		t.Errorf("%d spans", len(spans))
	}
	if size := len(received.Bytes()); size > 20_000 {
		t.Errorf("%d bytes", size)
	}
}

func TestSamplerOfTheEnvironment(t *testing.T) {
	received := collecting(t, "http/protobuf")
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
	f := newFixture(t, nil)
	f.send(http.MethodGet, locksPath+"new", "")
	f.send(http.MethodGet, locksPath+"theirs", "", "Traceparent", traceparent)
	f.stop()
	if spans := received.Spans(); len(spans) != 1 || spans[0].Text("lock_operator.key") != "theirs" {
		t.Errorf("%v", spans)
	}
}

func TestCallsDoNotNeedTheCollector(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(protocol, func(t *testing.T) {
			received := collecting(t, protocol)
			received.Stop()
			t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "100")
			t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
			t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
			t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
			clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
			f := newFixture(t, clock)
			for range 50 {
				if status, _ := f.send(http.MethodGet, locksPath+"k", ""); status != http.StatusNotFound {
					t.Fatal(status)
				}
			}
			f.stop()
			if lines := f.log.matching("could not be sent"); len(lines) != 1 {
				t.Errorf("%q", lines)
			}
		})
	}
}

func TestOffByDefault(t *testing.T) {
	type environment = map[string]string
	for name, test := range map[string]struct {
		set   environment
		fault string
	}{
		"nothing":          {},
		"none":             {set: environment{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}},
		"disabled":         {set: environment{"OTEL_SDK_DISABLED": "TRUE", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}},
		"another exporter": {set: environment{"OTEL_TRACES_EXPORTER": "zipkin"}, fault: "OTEL_TRACES_EXPORTER"},
		"another protocol": {set: environment{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, fault: "OTEL_EXPORTER_OTLP_PROTOCOL"},
		"a negative queue": {set: environment{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_BSP_MAX_QUEUE_SIZE": "-1"}, fault: "OTEL_BSP_MAX_QUEUE_SIZE"},
		"batches of none":  {set: environment{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "0"}, fault: "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"},
		"no delay":         {set: environment{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_BSP_SCHEDULE_DELAY": "0"}, fault: "OTEL_BSP_SCHEDULE_DELAY"},
	} {
		t.Run(name, func(t *testing.T) {
			clearEnvironment(t)
			for name, value := range test.set {
				t.Setenv(name, value)
			}
			before := goleak.IgnoreCurrent()
			log := &logged{}
			exporter := otlp.Start(t.Context(), otlp.Options{Logger: funcr.New(log.add, funcr.Options{})})
			if exporter != nil || exporter.Tracer() != nil {
				t.Error("traces are sent")
			}
			exporter.Stop(t.Context())
			if err := goleak.Find(before); err != nil {
				t.Error(err)
			}
			if faults := log.matching("Traces are not sent"); (len(faults) > 0) != (test.fault != "") || test.fault != "" && !strings.Contains(faults[0], test.fault) {
				t.Errorf("%q", faults)
			}
		})
	}
}

func TestStopLeavesNothing(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(protocol, func(t *testing.T) {
			received := collecting(t, protocol)
			before := goleak.IgnoreCurrent()
			f := newFixture(t, nil)
			f.send(http.MethodGet, locksPath+"k", "")
			f.stop()
			if len(received.Spans()) == 0 {
				t.Error("nothing was sent")
			}
			received.Stop()
			if err := goleak.Find(before); err != nil {
				t.Error(err)
			}
		})
	}
}
