package otlp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/tracing"
)

// What docs/operations.md says of the memory of traces.
const (
	// queuedBytes is what the largest span takes until it is sent, waitingBytes what the spans take of a caller
	// that waits, with the longest key.
	queuedBytes, waitingBytes = 6 << 10, 5 << 10
)

func heapInUse() uint64 {
	var stats runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func TestSpansTakeBoundedMemory(t *testing.T) {
	to := &receiver{}
	to.goAway()
	q := newQueue(to, boundsOf(func(string) string { return "" }), clock.RealClock{}, &lossLog{clock: clock.RealClock{}})
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(q))
	tracer := tracing.New(provider, tracing.Options{})
	// All texts are of one call each, and longer than what is kept of them.
	begin := func() (context.Context, *tracing.Call) {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
		call := tracer.Arrive("forrst", request)
		ctx := call.Begin(t.Context(), tracing.NewParent(strings.Repeat("t", 10_000), "", "01", "a="+strings.Repeat("s", 255)))
		return ctx, call
	}
	end := func(call *tracing.Call) {
		call.End(t.Context(), tracing.Result{
			Operation: "routed", Function: strings.Repeat("f", 10_000), Namespace: strings.Repeat("n", 63), FencingToken: 1,
			Key: v1alpha1.FullKeyOf(strings.Repeat("k", 10_000)), Outcome: "INVALID_ARGUMENTS", Status: http.StatusBadRequest,
		})
	}
	const kept, ended = 2048 + 512, 10_000
	before := heapInUse()
	for range ended {
		_, call := begin()
		end(call)
	}
	if each := (heapInUse() - before) / kept; each > queuedBytes {
		t.Errorf("%d bytes for each of the spans that wait to be sent", each)
	} else {
		t.Logf("%d bytes for each of %d spans", each, kept)
	}

	const callers = 1000
	waits := make([]context.Context, 0, callers)
	calls := make([]*tracing.Call, callers)
	before = heapInUse()
	for i := range callers {
		ctx, call := begin()
		calls[i] = call
		waits = append(waits, tracer.BeginWait(ctx, strings.Repeat("n", 63), v1alpha1.FullKeyOf(strings.Repeat("k", 10_000))))
	}
	if each := (heapInUse() - before) / callers; each > waitingBytes {
		t.Errorf("%d bytes for the spans of a caller that waits", each)
	} else {
		t.Logf("%d bytes for each of %d callers", each, callers)
	}
	for i := range callers {
		tracer.EndWait(waits[i], nil)
		end(calls[i])
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 50*time.Millisecond) // The receiver never answers.
	defer cancel()
	if err := provider.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}
