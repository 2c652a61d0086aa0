package tracing_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
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

// refusing is an API server that refuses every write, since what it is about has changed.
type refusing struct{}

func (refusing) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusConflict, Body: http.NoBody}, nil
}

// A hand-off tries only if there is a waiter, and tells of no error if the write was refused.
func TestAReleaseIsSentIfAnythingWasAskedFor(t *testing.T) {
	for name, test := range map[string]struct {
		isAsked bool
		err     error
		want    []string
	}{
		"nothing was asked for":  {want: nil},
		"a write was refused":    {isAsked: true, want: []string{"update locks", "release"}},
		"it failed before that":  {err: lock.ErrUnavailable, want: []string{"release"}},
		"a write had no success": {isAsked: true, err: lock.ErrUnavailable, want: []string{"update locks", "release"}},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := tracetest.NewSpanRecorder()
			tracer := tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)), tracing.Options{})
			ctx, end := tracer.BeginRelease(t.Context(), nil, "payments", v1alpha1.FullKeyOf("k"))
			if test.isAsked {
				request := httptest.NewRequestWithContext(ctx, http.MethodPut, "/apis/forrst.dev/v1alpha1/namespaces/payments/locks/k", http.NoBody)
				response, err := tracer.RoundTripper(refusing{}).RoundTrip(request)
				if err != nil {
					t.Fatal(err)
				}
				_ = response.Body.Close()
			}
			end(test.err)
			ended := recorder.Ended()
			var names []string
			for _, span := range ended {
				names = append(names, span.Name())
			}
			if !slices.Equal(names, test.want) {
				t.Fatalf("the spans are %q, want %q", names, test.want)
			}
			if test.isAsked && ended[0].Parent().SpanID() != ended[1].SpanContext().SpanID() {
				t.Error("the request is no part of the release")
			}
		})
	}
}
