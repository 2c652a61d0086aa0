package otlp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testfacade"
	"forrst.dev/lock-operator/tracing"
)

// instantLocks has one lock, which it grants to all callers, and does nothing else.
type instantLocks struct {
	lock.Backend
	granted *v1alpha1.Lock
}

func (l *instantLocks) Acquire(context.Context, string, lock.Request) (*v1alpha1.Lock, error) {
	return l.granted, nil
}

// discarding takes spans and forgets them.
type discarding struct{}

func (discarding) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (discarding) Shutdown(context.Context) error                             { return nil }

// BenchmarkAcquire is an acquire at the REST door without the network and the locks themselves: without
// traces, with a caller that has decided against them, with spans that are not sampled, and with all of them.
func BenchmarkAcquire(b *testing.B) {
	provider := func(sampler sdktrace.Sampler) *tracing.Tracer {
		provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(discarding{}), sdktrace.WithSampler(sampler))
		b.Cleanup(func() { _ = provider.Shutdown(context.WithoutCancel(b.Context())) })
		return tracing.New(provider, tracing.Options{IsByParent: true})
	}
	for name, tracer := range map[string]*tracing.Tracer{
		"off": nil, "declined": provider(sdktrace.ParentBased(sdktrace.AlwaysSample())),
		"unsampled": provider(sdktrace.NeverSample()), "sampled": provider(sdktrace.AlwaysSample()),
	} {
		b.Run(name, func(b *testing.B) {
			granted, err := locktest.New().Acquire(b.Context(), "payments", lock.Request{Acquisition: rules.Acquisition{Key: "k", TTL: time.Minute}})
			if err != nil {
				b.Fatal(err)
			}
			handler, err := testfacade.New(testfacade.Settings{
				Locks: &instantLocks{granted: granted}, Namespace: "payments", Server: server.Options{Tracer: tracer},
			})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				request := httptest.NewRequestWithContext(b.Context(), http.MethodPost, locksPath+"k", strings.NewReader(`{"ttl_seconds":60}`))
				request.Header.Set("Content-Type", "application/json")
				if name == "declined" {
					request.Header.Set("Traceparent", strings.TrimSuffix(traceparent, "1")+"0")
				}
				writer := httptest.NewRecorder()
				handler.ServeHTTP(writer, request)
				if writer.Code != http.StatusCreated {
					b.Fatal(writer.Code)
				}
			}
		})
	}
}
