package tracing

import (
	"net/http"
	"net/http/httptest"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// sent is the request that comes to the API server.
type sent struct{ request *http.Request }

func (s *sent) RoundTrip(request *http.Request) (*http.Response, error) {
	s.request = request
	return &http.Response{StatusCode: http.StatusCreated, Body: http.NoBody}, nil
}

func TestTheAPIServerIsToldOnlyIfAsked(t *testing.T) {
	for _, isAsked := range []bool{true, false} {
		recorder := tracetest.NewSpanRecorder()
		tracer := New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)), Options{TellsAPIServer: isAsked})
		ctx := tracer.Arrive("rest", httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)).Begin(t.Context(), Parent{})
		request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/apis/forrst.dev/v1alpha1/namespaces/payments/locks", http.NoBody)
		next := &sent{}
		response, err := tracer.RoundTripper(next).RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if len(recorder.Ended()) != 1 {
			t.Fatal(recorder.Ended())
		}
		if got, want := trace.SpanContextFromContext(next.request.Context()), recorder.Ended()[0].SpanContext(); !got.Equal(want) {
			t.Errorf("the request is sent within %v, want its own span %v", got, want)
		}
		want := ""
		if of := recorder.Ended()[0].SpanContext(); isAsked {
			want = "00-" + of.TraceID().String() + "-" + of.SpanID().String() + "-01"
		}
		if got := next.request.Header.Get("Traceparent"); got != want {
			t.Errorf("the API server is told %q, want %q", got, want)
		}
		if len(request.Header) > 0 {
			t.Errorf("the request itself was changed: %v", request.Header)
		}
	}
}

func TestRequestsAreNamedByWhatTheyAskFor(t *testing.T) {
	const locks = "/apis/forrst.dev/v1alpha1/namespaces/payments/locks"
	for request, want := range map[[2]string]string{
		{http.MethodPost, locks}:                                                "create locks",
		{http.MethodPut, locks + "/billing--report"}:                            "update locks",
		{http.MethodDelete, locks + "/billing--report"}:                         "delete locks",
		{http.MethodDelete, locks}:                                              "deletecollection locks",
		{http.MethodGet, locks + "/billing--report"}:                            "get locks",
		{http.MethodGet, locks}:                                                 "list locks",
		{http.MethodGet, "/apis/forrst.dev/v1alpha1/locks?limit=1&watch=true"}:  "watch locks",
		{http.MethodPatch, "/apis/batch/v1/namespaces/payments/jobs/j/status"}:  "patch jobs/status",
		{http.MethodGet, "/api/v1/namespaces/payments"}:                         "get namespaces",
		{http.MethodGet, "/api/v1/namespaces/payments/pods/p"}:                  "get pods",
		{http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews"}: "create subjectaccessreviews",
		{http.MethodGet, "/readyz/ping"}:                                        "get /readyz",
		{http.MethodGet, "/"}:                                                   "get /",
		{http.MethodGet, "/apis/forrst.dev/v1alpha1"}:                           "get /apis",
	} {
		verb, resource := requested(httptest.NewRequestWithContext(t.Context(), request[0], request[1], http.NoBody))
		if got := verb + " " + resource; got != want {
			t.Errorf("%v is %q, want %q", request, got, want)
		}
	}
}
