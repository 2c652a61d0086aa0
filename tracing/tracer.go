package tracing

import (
	"context"
	"errors"
	"strings"
	"time"

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
	objectKey     = attribute.Key("lock_operator.object")
	jobKey        = attribute.Key("k8s.job.name")
	fencingKey    = attribute.Key("lock_operator.fencing_token")
	forrstTrace   = attribute.Key("lock_operator.forrst_trace_id")
	apiVerb       = attribute.Key("lock_operator.api_verb")
	apiResource   = attribute.Key("lock_operator.api_resource")
	errorType     = attribute.Key("error.type")
	httpMethod    = attribute.Key("http.request.method")
	httpStatus    = attribute.Key("http.response.status_code")
	maxText       = 1100 // bytes of an attribute; the longest full key is shorter.
	maxState      = 512  // bytes of a tracestate header: as many as W3C asks to pass on. All spans of a call keep it.
	okOutcome     = "OK"
	otherError    = "_OTHER"
	invalidString = "\uFFFD"
)

// slowStep is how long a step of a call takes that gets a span of its own: what was answered from memory would
// double the spans of a call and tell nothing.
const slowStep = time.Millisecond

// Options configures a [Tracer].
type Options struct {
	// IsByParent says that the provider makes no spans of a call whose caller has decided against them. Calls
	// of such callers then cost nothing. Zero means that this is not known.
	IsByParent bool
	// TellsAPIServer has each traced request to the API server name its span by a traceparent header. The API
	// server passes that on to etcd, sent traces or not, which costs it a tenth of what a small write does.
	TellsAPIServer bool
	// Clock tells when calls arrive, and how long they take. Nil means the real clock.
	Clock clock.PassiveClock
}

// Tracer makes the spans of a process. It is safe for concurrent use. The methods of a nil *Tracer do
// nothing, at next to no cost.
type Tracer struct {
	spans   trace.Tracer
	options Options
}

// New returns a tracer whose spans the provider takes.
func New(provider trace.TracerProvider, options Options) *Tracer {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	return &Tracer{spans: provider.Tracer(scope), options: options}
}

func (t *Tracer) now() time.Time { return t.options.Clock.Now() }

// Options of spans that need none else. They must not be changed.
var (
	ofServer = trace.WithSpanKind(trace.SpanKindServer)
	ofClient = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}
)

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
