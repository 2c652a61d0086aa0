package tracing_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/tracing"
	"forrst.dev/lock-operator/webhook/traced"
)

const (
	ids    = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"
	review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"UPDATE",
		"resource":{"group":"apps","version":"v1","resource":"deployments"},"subResource":"scale","namespace":"payments","name":"ledger"}}`
)

// ask sends a review to the handler, with the traceparent unless it is empty, and returns its spans and whether
// it was admitted.
func ask(t *testing.T, traceparent string, handler admission.HandlerFunc) (spans []sdktrace.ReadOnlySpan, isAdmitted bool) {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	tracer := tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)), tracing.Options{IsByParent: true})
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(review))
	request.Header.Set("Content-Type", "application/json")
	if traceparent != "" {
		request.Header.Set("Traceparent", traceparent)
	}
	writer := httptest.NewRecorder()
	traced.Webhook(tracer, handler).ServeHTTP(writer, request)
	var answer struct {
		Response struct {
			Allowed bool `json:"allowed"`
		} `json:"response"`
	}
	if err := json.Unmarshal(writer.Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	return recorder.Ended(), answer.Response.Allowed
}

func attributesOf(span sdktrace.ReadOnlySpan) map[string]string {
	found := map[string]string{}
	for _, attribute := range span.Attributes() {
		found[string(attribute.Key)] = attribute.Value.String()
	}
	return found
}

func TestAReviewBelongsToTheTraceOfTheAPIServer(t *testing.T) {
	var within trace.SpanContext
	spans, isAdmitted := ask(t, "00-"+ids+"-01", func(ctx context.Context, _ admission.Request) admission.Response {
		within = trace.SpanContextFromContext(ctx)
		return admission.Allowed("")
	})
	if len(spans) != 1 || !isAdmitted {
		t.Fatal(spans, isAdmitted)
	}
	span := spans[0]
	if got := span.SpanContext().TraceID().String() + "-" + span.Parent().SpanID().String(); got != ids || !within.Equal(span.SpanContext()) {
		t.Errorf("%s, within %v", got, within)
	}
	attributes := attributesOf(span)
	for name, want := range map[string]string{
		"lock_operator.door": "webhook", "lock_operator.api_verb": "update", "lock_operator.api_resource": "deployments/scale",
		"lock_operator.namespace": "payments", "lock_operator.object": "ledger", "lock_operator.outcome": "OK",
	} {
		if attributes[name] != want {
			t.Errorf("%s is %q", name, attributes[name])
		}
	}
	if span.Name() != "admit update deployments/scale" || span.SpanKind() != trace.SpanKindServer {
		t.Error(span.Name(), span.SpanKind())
	}
}

func TestWhatAReviewRefusesIsNotTold(t *testing.T) {
	for name, test := range map[string]struct {
		handler admission.HandlerFunc
		want    string
	}{
		"refused": {func(context.Context, admission.Request) admission.Response { return admission.Denied("a-secret") }, "Forbidden"},
		"panic":   {func(context.Context, admission.Request) admission.Response { panic("a-secret") }, "Unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			spans, isAdmitted := ask(t, "", test.handler)
			if len(spans) != 1 || isAdmitted || spans[0].Parent().IsValid() {
				t.Fatal(spans, isAdmitted)
			}
			if got := spans[0].Status().Description; got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
			for name, value := range attributesOf(spans[0]) {
				if strings.Contains(value, "a-secret") {
					t.Errorf("%s is %q", name, value)
				}
			}
		})
	}
}

func TestReviewsAreNotTracedAgainstTheWordOfTheAPIServer(t *testing.T) {
	spans, isAdmitted := ask(t, "00-"+ids+"-00", func(context.Context, admission.Request) admission.Response {
		return admission.Allowed("")
	})
	if len(spans) != 0 || !isAdmitted {
		t.Error(spans, isAdmitted)
	}
}
