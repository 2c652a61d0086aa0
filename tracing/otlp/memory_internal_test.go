package otlp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/tracing"
)

// away is a receiver that never answers.
type away struct{}

func (away) ExportSpans(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
	<-ctx.Done()
	return ctx.Err()
}

func (away) Shutdown(context.Context) error { return nil }

func heapInUse() uint64 {
	var stats runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// largest makes calls, each with texts of its own that are longer than what is kept of them.
type largest struct {
	t      *testing.T
	tracer *tracing.Tracer
}

func (l largest) begin() (context.Context, *tracing.Call) {
	call := l.tracer.Arrive("forrst", httptest.NewRequestWithContext(l.t.Context(), http.MethodPost, "/", http.NoBody))
	ctx := call.Begin(l.t.Context(), tracing.NewParent(strings.Repeat("t", 10_000), "", "01", "a="+strings.Repeat("s", 255)))
	return ctx, call
}

func (l largest) end(call *tracing.Call) {
	call.End(l.t.Context(), tracing.Result{
		Operation: "routed", Function: strings.Repeat("f", 10_000), Namespace: longestNamespace(), FencingToken: 1,
		Key: longestKey(), Outcome: "INVALID_ARGUMENTS", Status: http.StatusBadRequest,
	})
}

func longestKey() v1alpha1.FullKey { return v1alpha1.FullKeyOf(strings.Repeat("k", 10_000)) }

func longestNamespace() string { return strings.Repeat("n", 63) }

// wantAtMost measures what each of so many takes that are made and kept.
func wantAtMost(t *testing.T, what string, most uint64, number int, made func()) {
	t.Helper()
	before := heapInUse()
	made()
	each := (heapInUse() - before) / uint64(number)
	t.Logf("%d bytes for each of %d %s", each, number, what)
	if each > most {
		t.Errorf("%d bytes for %s, want %d at most", each, what, most)
	}
}

func TestSpansTakeBoundedMemory(t *testing.T) {
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(away{}))
	tracer := tracing.New(provider, tracing.Options{})
	made := largest{t, tracer}
	wantAtMost(t, "spans that wait to be sent", SpanBytes, DefaultQueue+DefaultBatch, func() {
		for range 10_000 {
			_, call := made.begin()
			made.end(call)
		}
	})

	const callers = 1000
	within, calls := make([]context.Context, 0, callers), make([]*tracing.Call, 0, callers)
	wantAtMost(t, "calls that wait", CallBytes, callers, func() {
		for range callers {
			ctx, call := made.begin()
			within, calls = append(within, ctx), append(calls, call)
		}
	})
	waits := make([]context.Context, 0, callers)
	wantAtMost(t, "waits of calls of this replica", WaitBytes, callers, func() {
		for i := range callers {
			waits = append(waits, tracer.BeginWait(within[i], longestNamespace(), longestKey()))
		}
	})
	atHome := make([]context.Context, 0, callers)
	wantAtMost(t, "waits of calls of another replica", WaitBytes, callers, func() {
		for i := range callers {
			call := tracing.ContextWithTraceparent(t.Context(), tracing.Traceparent(within[i]))
			atHome = append(atHome, tracer.BeginWait(call, longestNamespace(), longestKey()))
		}
	})
	jobs, waitsOfJobs := make([]*tracing.Job, callers), make([]context.Context, 0, callers)
	wantAtMost(t, "Jobs that wait", JobBytes, callers, func() {
		for i := range callers {
			jobs[i] = tracer.BeginJob(longestNamespace(), strings.Repeat("j", 63), longestKey(), time.Now())
			waitsOfJobs = append(waitsOfJobs, tracer.BeginWait(jobs[i].Within(t.Context()), longestNamespace(), longestKey()))
		}
	})
	for i := range callers {
		tracer.EndWait(waits[i], nil)
		tracer.EndWait(atHome[i], nil)
		tracer.EndWait(waitsOfJobs[i], nil)
		jobs[i].Started(1)
		made.end(calls[i])
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 50*time.Millisecond) // The receiver never answers.
	defer cancel()
	if err := provider.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestSendingSpansTakesBoundedMemory counts all that is allocated to send a batch, which is more than what is in use at
// any time.
func TestSendingSpansTakesBoundedMemory(t *testing.T) {
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer collector.Close()
	sender, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(collector.URL), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}))
	if err != nil {
		t.Fatal(err)
	}
	spans := tracetest.NewSpanRecorder()
	made := largest{t, tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)), tracing.Options{})}
	for range DefaultBatch {
		_, call := made.begin()
		made.end(call)
	}
	var before, after runtime.MemStats
	for range 2 { // The first connects.
		runtime.ReadMemStats(&before)
		if err := sender.ExportSpans(t.Context(), spans.Ended()); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
	}
	each := (after.TotalAlloc - before.TotalAlloc) / DefaultBatch
	t.Logf("%d bytes for each span that is sent", each)
	if each > EncodedBytes {
		t.Errorf("%d bytes for each span that is sent, want %d at most", each, EncodedBytes)
	}
}
