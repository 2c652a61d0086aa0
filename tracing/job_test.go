package tracing_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/tracing"
)

func TestSpansTellOnlyTheKindOfAnError(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{errors.New("a-secret"), "_OTHER"},
		{fmt.Errorf("a-secret: %w", lock.ErrRefused), "refused"},
	} {
		recorder := tracetest.NewSpanRecorder()
		tracer := tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)), tracing.Options{})
		tracer.BeginJob("payments", "ledger", v1alpha1.FullKeyOf(strings.Repeat("k", 10_000)), time.Now()).Failed(test.err)
		if len(recorder.Ended()) != 1 {
			t.Fatal(recorder.Ended())
		}
		span := recorder.Ended()[0]
		attributes := attributesOf(span)
		if got := span.Status().Description; got != test.want || attributes["error.type"] != test.want || len(span.Events()) != 0 {
			t.Errorf("%q, with %q as its type, want %q", got, attributes["error.type"], test.want)
		}
		if key := attributes["lock_operator.key"]; len(key) != 1100 {
			t.Errorf("a key of %d bytes", len(key))
		}
	}
}
