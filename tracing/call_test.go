package tracing_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/tracing"
)

// recorded returns a tracer and its spans.
func recorded(options tracing.Options) (*tracing.Tracer, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	return tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)), options), spans
}

func namesOf(spans *tracetest.SpanRecorder) (names []string) {
	for _, span := range spans.Ended() {
		names = append(names, span.Name())
	}
	return names
}

func TestAuthenticationHasASpanIfItIsSlowOrFails(t *testing.T) {
	for name, test := range map[string]struct {
		took time.Duration
		err  error
		want []string
	}{
		"from memory": {took: 999 * time.Microsecond, want: []string{"rest renew"}},
		"reviewed":    {took: time.Millisecond, want: []string{"authenticate", "rest renew"}},
		"refused":     {err: errors.New("refused"), want: []string{"authenticate", "rest renew"}},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
			tracer, spans := recorded(tracing.Options{Clock: clock})
			call := tracer.Arrive("rest", httptest.NewRequestWithContext(t.Context(), http.MethodPatch, "/", http.NoBody))
			call.Begin(t.Context(), tracing.Parent{})
			call.BeginAuthentication()
			clock.SetTime(clock.Now().Add(test.took))
			call.EndAuthentication(test.err)
			call.End(t.Context(), tracing.Result{Operation: "renew", Outcome: "OK", Status: http.StatusOK})
			if got := namesOf(spans); !slices.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestCallersCanDeclineTraces(t *testing.T) {
	const ids = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"
	for traceparent, want := range map[string]bool{
		"":                   false,
		"00-" + ids + "-01":  false,
		"00-" + ids + "-00":  true,
		"00-" + ids + "-02":  true,
		"00-" + ids + "-0A":  false,
		"00-" + ids + "-g0":  false,
		"00-" + ids + "-0":   false,
		"01-" + ids + "-00":  false, // The slow way finds out.
		"00_" + ids + "-00":  false,
		"00-" + ids + "-00-": false,
		"00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-00":                 false,
		"00-0af7651916cd43dd8448eb211c80319c-" + strings.Repeat("0", 16) + "-00": false,
	} {
		header := http.Header{"Traceparent": {traceparent}}
		for isByParent, want := range map[bool]bool{true: want, false: false} {
			if tracer, _ := recorded(tracing.Options{IsByParent: isByParent}); tracer.Declines(header) != want {
				t.Errorf("%q, by the parent: %v: want %v", traceparent, isByParent, want)
			}
		}
	}
	tracer, spans := recorded(tracing.Options{IsByParent: true})
	header := http.Header{"Traceparent": {"00-" + ids + "-00"}}
	if allocations := testing.AllocsPerRun(100, func() { tracer.Declines(header) }); allocations != 0 {
		t.Errorf("%g allocations", allocations)
	}
	// A door that learns of the trace later.
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
	call := tracer.Arrive("forrst", request)
	if begun := call.Begin(t.Context(), tracing.ParentOfHeaders(t.Context(), header)); begun != t.Context() {
		t.Error("another context")
	}
	if _, _, _, ok := call.IDs(); ok {
		t.Error("it has a span")
	}
	call.EndAuthentication(errors.New("refused"))
	call.End(t.Context(), tracing.Result{Outcome: "OK"})
	if got := namesOf(spans); len(got) > 0 {
		t.Error(got)
	}
}

func TestTracestateIsBounded(t *testing.T) {
	const id, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for state, want := range map[string]bool{
		"a=" + strings.Repeat("b", 200):                                    true,
		"a=" + strings.Repeat("b", 251) + ",c=" + strings.Repeat("d", 256): true,
		"a=" + strings.Repeat("b", 252) + ",c=" + strings.Repeat("d", 256): false,
		strings.Repeat("a=b,", 200):                                        false,
	} {
		header := http.Header{"Traceparent": {"00-" + id + "-" + span + "-01"}, "Tracestate": {state}}
		for name, parent := range map[string]tracing.Parent{
			"headers": tracing.ParentOfHeaders(t.Context(), header), "words": tracing.NewParent(id, span, "01", state),
		} {
			tracer, spans := recorded(tracing.Options{})
			call := tracer.Arrive("rest", httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody))
			call.Begin(t.Context(), parent)
			call.End(t.Context(), tracing.Result{Outcome: "OK"})
			within := spans.Ended()[0].SpanContext()
			if (within.TraceState().String() == state) != want || within.TraceID().String() != id {
				t.Errorf("%s: %d bytes: the state is %q", name, len(state), within.TraceState())
			}
		}
	}
}
