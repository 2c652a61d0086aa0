package tracing

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/lock"
)

// scope is the name of what makes the spans, in every one of them.
const scope = "forrst.dev/lock-operator"

// Attributes of spans, besides those of the conventions of OpenTelemetry.
const (
	doorKey       = attribute.Key("lock_operator.door")
	operationKey  = attribute.Key("lock_operator.operation")
	functionKey   = attribute.Key("lock_operator.function")
	outcomeKey    = attribute.Key("lock_operator.outcome")
	namespaceKey  = attribute.Key("lock_operator.namespace")
	lockKey       = attribute.Key("lock_operator.key")
	fencingKey    = attribute.Key("lock_operator.fencing_token")
	forrstTrace   = attribute.Key("lock_operator.forrst_trace_id")
	apiVerb       = attribute.Key("lock_operator.api_verb")
	apiResource   = attribute.Key("lock_operator.api_resource")
	errorType     = attribute.Key("error.type")
	httpMethod    = attribute.Key("http.request.method")
	httpStatus    = attribute.Key("http.response.status_code")
	maxText       = 1100 // bytes of an attribute; the longest full key is shorter.
	okOutcome     = "OK"
	otherError    = "_OTHER"
	invalidString = "\uFFFD"
)

// Tracer makes the spans of a process. It is safe for concurrent use. The methods of a nil *Tracer do
// nothing, at next to no cost.
type Tracer struct {
	spans trace.Tracer
	clock clock.PassiveClock
}

// New returns a tracer whose spans the provider takes. Their times are those of the real clock.
func New(provider trace.TracerProvider) *Tracer {
	return &Tracer{spans: provider.Tracer(scope), clock: clock.RealClock{}}
}

// Span is one step of a call. The zero Span stands for none.
type Span struct{ span trace.Span }

// Begin begins a step within the span of ctx, and returns the context of the step. There is none if the call
// is not traced.
func (t *Tracer) Begin(ctx context.Context, name string) (context.Context, Span) {
	if t == nil || !isTraced(ctx) {
		return ctx, Span{}
	}
	ctx, span := t.spans.Start(ctx, name)
	return ctx, Span{span}
}

// End ends the step. An error makes it a failed one; its text is not told.
func (s Span) End(err error) {
	if s.span == nil {
		return
	}
	fail(s.span, err)
	s.span.End()
}

// isTraced reports whether the spans of the trace of ctx are sent. The span itself may have ended.
func isTraced(ctx context.Context) bool { return trace.SpanContextFromContext(ctx).IsSampled() }

// fail marks the span as failed unless err is nil.
func fail(span trace.Span, err error) {
	if err != nil {
		failAs(span, typeOf(err))
	}
}

func failAs(span trace.Span, kind string) {
	span.SetStatus(codes.Error, kind)
	span.SetAttributes(errorType.String(kind))
}

// errorTypes are what spans call errors, whose texts may repeat what callers have sent. The first that
// matches counts.
var errorTypes = []struct {
	err  error
	name string
}{
	{lock.ErrTimeout, "wait_ended"},
	{lock.ErrHeld, "held"},
	{lock.ErrNotHeld, "not_held"},
	{lock.ErrOwnerMismatch, "wrong_owner"},
	{lock.ErrStale, "stale"},
	{lock.ErrInvalid, "invalid"},
	{lock.ErrUnauthenticated, "unauthenticated"},
	{lock.ErrForbidden, "forbidden"},
	{lock.ErrRefused, "refused"},
	{context.Canceled, "cancelled"},
	{context.DeadlineExceeded, "timeout"},
	{lock.ErrUnavailable, "unavailable"},
}

func typeOf(err error) string {
	for _, each := range errorTypes {
		if errors.Is(err, each.err) {
			return each.name
		}
	}
	return otherError
}

// text returns what callers have chosen as the value of an attribute, bounded: spans stay in memory for a
// while, and one that is no UTF-8 would keep all that are sent together from being sent.
func text(chosen string) string {
	if len(chosen) > maxText {
		chosen = chosen[:maxText]
	}
	return strings.Clone(strings.ToValidUTF8(chosen, invalidString))
}
