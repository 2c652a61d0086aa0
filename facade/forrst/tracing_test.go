package forrst_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/forward"
)

const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	parentID    = "b7ad6b7169203331"
	traceparent = "00-" + traceID + "-" + parentID + "-00"
	tracingURN  = "urn:forrst:ext:tracing"
)

var (
	spanPattern  = regexp.MustCompile(`^[0-9a-f]{16}$`)
	tracePattern = regexp.MustCompile(`^[0-9a-f]{32}$`)
)

func tracing(options string) string {
	return `{"urn":"` + tracingURN + `","options":` + options + `}`
}

type tracingEntry struct {
	TraceID  string          `json:"trace_id"`
	SpanID   string          `json:"span_id"`
	Duration json.RawMessage `json:"duration"`
}

func TestTraceOfACall(t *testing.T) {
	type cases = map[string]struct {
		options string
		header  map[string]string
		want    forward.Trace
	}
	for name, test := range (cases{
		"options": {
			options: `{"trace_id":"t-1","span_id":"s-1","parent_span_id":"p","baggage":{"a":1.0}}`,
			want:    forward.Trace{ID: "t-1", Parent: "s-1", Baggage: json.RawMessage(`{"a":1.0}`), Flags: "01"},
		},
		"options before headers": {
			options: `{"trace_id":"t-1"}`, header: map[string]string{"X-Forrst-Trace-Id": "t-2", "traceparent": traceparent},
			want: forward.Trace{ID: "t-1", Flags: "01"},
		},
		"options about the trace of the header": {
			options: `{"trace_id":"` + traceID + `"}`, header: map[string]string{"traceparent": traceparent, "tracestate": "a=1"},
			want: forward.Trace{ID: traceID, Parent: parentID, Flags: "00", State: "a=1"},
		},
		"header of the protocol before the general one": {
			options: `{}`, header: map[string]string{"X-Forrst-Trace-Id": "t-2", "traceparent": traceparent},
			want: forward.Trace{ID: "t-2", Flags: "01"},
		},
		"general header": {
			options: `{}`, header: map[string]string{"traceparent": traceparent},
			want: forward.Trace{ID: traceID, Parent: parentID, Flags: "00"},
		},
		"general header of a later version": {
			options: `{}`, header: map[string]string{"traceparent": "01" + traceparent[2:] + "-more"},
			want: forward.Trace{ID: traceID, Parent: parentID, Flags: "00"},
		},
		"a header alone": {
			header: map[string]string{"traceparent": traceparent},
			want:   forward.Trace{ID: traceID, Parent: parentID, Flags: "00"},
		},
		"nothing usable": {
			options: `{"trace_id":7,"span_id":[],"baggage":"x","parent_span_id":{}}`,
			header:  map[string]string{"traceparent": "ff" + traceparent[2:]},
		},
		"a trace of zeros":  {options: `{"trace_id":""}`, header: map[string]string{"traceparent": strings.Replace(traceparent, traceID, strings.Repeat("0", 32), 1)}},
		"a header too long": {options: `{}`, header: map[string]string{"traceparent": traceparent + "-x"}},
	}) {
		t.Run(name, func(t *testing.T) {
			var seen forward.Trace
			var f *fixture
			f = newFixture(t, function("traced", func(ctx context.Context) (any, error) {
				seen = *forrst.TraceOf(ctx)
				f.clock.SetTime(f.clock.Now().Add(2 * time.Second))
				return true, nil
			}))
			var extensions string
			if test.options != "" {
				extensions = tracing(test.options)
			}
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, forrst.Path, strings.NewReader(envelopeWith("traced", "", extensions)))
			for name, value := range test.header {
				request.Header.Set(name, value)
			}
			got := f.serve(request)
			if test.want.ID == "" {
				if !tracePattern.MatchString(seen.ID) {
					t.Errorf("made up %q", seen.ID)
				}
				test.want = forward.Trace{ID: seen.ID, Flags: "01"}
			}
			if diff := cmp.Diff(test.want, seen, cmpopts.IgnoreFields(forward.Trace{}, "Span")); diff != "" || !spanPattern.MatchString(seen.Span) {
				t.Errorf("span %q (-want +got):\n%s", seen.Span, diff)
			}
			if test.options == "" {
				if got.Extensions != nil {
					t.Errorf("a header switched the extension on: %s", got.body)
				}
				return
			}
			var entry tracingEntry
			if err := json.Unmarshal(got.Extension(tracingURN), &entry); err != nil {
				t.Fatal(err)
			}
			want := tracingEntry{TraceID: seen.ID, SpanID: seen.Span, Duration: json.RawMessage(`{"value":2000,"unit":"millisecond"}`)}
			if diff := cmp.Diff(want, entry); diff != "" || got.status != 200 {
				t.Errorf("status %d (-want +got):\n%s", got.status, diff)
			}
		})
	}
}

func TestUntracedCallHasNoTrace(t *testing.T) {
	f := newFixture(t, function("f", func(ctx context.Context) (any, error) {
		return forrst.TraceOf(ctx) != nil, nil
	}))
	if got := f.post(envelopeWith("f", "", "")); string(got.Result) != "false" {
		t.Error(got.body)
	}
}

func TestFailuresAreTraced(t *testing.T) {
	f := newFixture(t, function("panics", func(context.Context) (any, error) { panic("x") }))
	for function, want := range map[string]int{"unknown": 404, "panics": 500, "forrst.locks.release": 400} {
		got := f.post(envelopeWith(function, "", tracing(`{"trace_id":"t-1"}`)))
		if got.status != want || !strings.HasPrefix(got.entry(tracingURN), `{"trace_id":"t-1","span_id":"`) {
			t.Errorf("%s: status %d, %s", function, got.status, got.body)
		}
	}
}

func TestTraceparentGoesOn(t *testing.T) {
	trace := forward.Trace{ID: traceID, Span: parentID, Flags: "00"}
	if header, ok := trace.Traceparent(); header != traceparent || !ok {
		t.Errorf("%q, %t", header, ok)
	}
	trace.ID = "t-1"
	if header, ok := trace.Traceparent(); header != "" || ok {
		t.Errorf("%q, %t", header, ok)
	}
}
