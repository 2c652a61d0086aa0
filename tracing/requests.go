package tracing

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// RoundTripper makes the spans of the requests that next sends to the API server on behalf of traced calls,
// and tells it of them if [Options] says so. Other requests are not traced: those of informers and controllers
// would each be a trace of its own. It is a wrapper for [k8s.io/client-go/rest.Config.Wrap].
func (t *Tracer) RoundTripper(next http.RoundTripper) http.RoundTripper {
	if t == nil {
		return next
	}
	return &roundTripper{tracer: t, next: next}
}

type roundTripper struct {
	tracer *Tracer
	next   http.RoundTripper
}

var _ utilnet.RoundTripperWrapper = (*roundTripper)(nil)

// WrappedRoundTripper implements [utilnet.RoundTripperWrapper].
func (r *roundTripper) WrappedRoundTripper() http.RoundTripper { return r.next }

// RoundTrip implements [http.RoundTripper]. The span ends with the header of the answer.
func (r *roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx := request.Context()
	if !isTraced(ctx) {
		return r.next.RoundTrip(request)
	}
	verb, resource := requested(request)
	ctx, span := r.tracer.spans.Start(ctx, verb+" "+resource, ofClient...)
	defer span.End()
	if hasSent, ok := ctx.Value(hasSentKey{}).(*atomic.Bool); ok {
		hasSent.Store(true)
	}
	// A round tripper must not change the request.
	request = request.WithContext(ctx)
	if r.tracer.options.TellsAPIServer {
		request.Header = request.Header.Clone()
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(request.Header))
	}
	response, err := r.next.RoundTrip(request)
	attributes := make([]attribute.KeyValue, 0, 4)
	attributes = append(attributes, httpMethod.String(request.Method), apiVerb.String(verb), apiResource.String(resource))
	switch {
	case err != nil:
		failAs(span, requestErrorType(ctx, err))
	default:
		attributes = append(attributes, httpStatus.Int(response.StatusCode))
		if response.StatusCode >= http.StatusBadRequest {
			failAs(span, strconv.Itoa(response.StatusCode))
		}
	}
	span.SetAttributes(attributes...)
	return response, err
}

func requestErrorType(ctx context.Context, err error) string {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(ctx.Err(), context.Canceled):
		return "cancelled"
	case errors.Is(err, context.DeadlineExceeded), ctx.Err() != nil:
		return "timeout"
	}
	return "connection"
}

// requested returns what a request to the API server asks for: the verb, by the names of RBAC, and the
// resource, with its subresource. Of other paths it returns the method and the first part.
func requested(request *http.Request) (verb, resource string) {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return strings.ToLower(request.Method), "/" + parts[0]
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	resource = parts[0]
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	return verbOf(request, len(parts) > 1), resource
}

func verbOf(request *http.Request, isNamed bool) string {
	switch request.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if isNamed {
			return "delete"
		}
		return "deletecollection"
	}
	switch {
	case strings.Contains(request.URL.RawQuery, "watch=true"):
		return "watch"
	case isNamed:
		return "get"
	}
	return "list"
}
