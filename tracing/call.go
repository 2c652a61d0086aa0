package tracing

import (
	"context"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Call is the trace of one call at a door. It is not safe for concurrent use. The methods of a nil *Call do
// nothing.
type Call struct {
	tracer  *Tracer
	door    string
	request *http.Request
	arrived time.Time
	// authentication is the part of the call that is over before its trace may be known.
	authentication struct {
		begun, ended time.Time
		err          error
	}
	span trace.Span
	// isDeclined says that the caller has decided that its trace is not sent.
	isDeclined bool
}

// Declines reports whether a call with the headers of W3C Trace Context is not traced, because its caller has
// decided so. It is cheaper than to find that out by a [Call].
func (t *Tracer) Declines(header http.Header) bool {
	if t == nil {
		return true
	}
	const digits, flags = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"), 2
	text := header.Get("Traceparent")
	if !t.options.IsByParent || len(text) != digits+flags || !strings.HasPrefix(text, "00-") || text[35] != '-' || text[digits-1] != '-' {
		return false
	}
	_, noTrace := trace.TraceIDFromHex(text[3:35])
	_, noSpan := trace.SpanIDFromHex(text[36 : digits-1])
	return noTrace == nil && noSpan == nil && strings.IndexByte("0123456789abcdef", text[digits]) >= 0 && strings.IndexByte("02468ace", text[digits+1]) >= 0
}

// Arrive is called when a request for the door has arrived. It returns nil if nothing is traced.
func (t *Tracer) Arrive(door string, request *http.Request) *Call {
	if t == nil {
		return nil
	}
	return &Call{tracer: t, door: door, request: request, arrived: t.now()}
}

// BeginAuthentication is called before the caller is authenticated.
func (c *Call) BeginAuthentication() {
	if c != nil {
		c.authentication.begun = c.tracer.now()
	}
}

// EndAuthentication is called with the outcome.
func (c *Call) EndAuthentication(err error) {
	if c == nil {
		return
	}
	c.authentication.ended, c.authentication.err = c.tracer.now(), err
	if c.span != nil {
		c.traceAuthentication()
	}
}

// traceAuthentication makes the span of the authentication, which is over, if it has failed or was slow.
// Requests to the API server are none of its parts: calls with the same token share one.
func (c *Call) traceAuthentication() {
	if c.authentication.ended.IsZero() || !c.span.IsRecording() ||
		c.authentication.err == nil && c.authentication.ended.Sub(c.authentication.begun) < slowStep {
		return
	}
	within := trace.ContextWithSpan(context.Background(), c.span)
	_, span := c.tracer.spans.Start(within, "authenticate", trace.WithTimestamp(c.authentication.begun))
	fail(span, c.authentication.err)
	span.End(trace.WithTimestamp(c.authentication.ended))
}

// Parent is the span of the caller.
type Parent struct {
	within trace.SpanContext
	// named is the id of the trace in the caller's words, if those are not the ones of W3C.
	named string
}

// ParentOfHeaders returns the parent by the headers of W3C Trace Context. The context is that of the request.
func ParentOfHeaders(ctx context.Context, header http.Header) Parent {
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(header))
	within := trace.SpanContextFromContext(ctx)
	if len(header.Get("Tracestate")) > maxState {
		within = within.WithTraceState(trace.TraceState{})
	}
	return Parent{within: within}
}

// NewParent returns the parent that the caller names in its own words. The trace is that of the id if it is
// one of W3C, or a UUID, and otherwise a new one, which has the id as an attribute. Without a
// valid span, the call is the first of that trace. Flags are two hexadecimal digits, and state is a
// tracestate header.
func NewParent(traceID, spanID, flags, state string) Parent {
	id, err := trace.TraceIDFromHex(strings.ReplaceAll(strings.ToLower(traceID), "-", ""))
	if err != nil {
		return Parent{named: text(traceID)}
	}
	config := trace.SpanContextConfig{TraceID: id, Remote: true}
	config.SpanID, _ = trace.SpanIDFromHex(strings.ToLower(spanID))
	if len(flags) == 2 && strings.IndexByte("13579bdf", flags[1]) >= 0 {
		config.TraceFlags = trace.FlagsSampled
	}
	if len(state) <= maxState {
		config.TraceState, _ = trace.ParseTraceState(state)
	}
	return Parent{within: trace.NewSpanContext(config)}
}

// Begin begins the span of the call, as of its arrival, and returns the context of what the call does.
func (c *Call) Begin(ctx context.Context, parent Parent) context.Context {
	if c == nil {
		return ctx
	}
	if c.isDeclined = c.tracer.options.IsByParent && parent.within.IsValid() && !parent.within.IsSampled(); c.isDeclined {
		return ctx
	}
	if parent.within.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent.within)
	} else if parent.within.HasTraceID() {
		ctx = context.WithValue(ctx, chosenTraceKey{}, parent.within.TraceID())
	}
	ctx, c.span = c.tracer.spans.Start(ctx, c.door, ofServer, trace.WithTimestamp(c.arrived))
	if parent.named != "" && c.span.IsRecording() {
		c.span.SetAttributes(forrstTrace.String(parent.named))
	}
	c.traceAuthentication()
	return ctx
}

// IDs returns the ids of the trace and of the span of the call, and the flags of the trace, in lower-case
// hexadecimal digits. It reports false if the call is not traced, has not begun, or was declined by its caller.
func (c *Call) IDs() (traceID, spanID, flags string, ok bool) {
	if c == nil || c.span == nil {
		return "", "", "", false
	}
	within := c.span.SpanContext()
	return within.TraceID().String(), within.SpanID().String(), within.TraceFlags().String(), true
}

// Result is what has come of a call.
type Result struct {
	// Operation is what was asked for, one of a bounded number of texts.
	Operation string
	// Function is the name of a function of the Forrst door. May be empty.
	Function string
	// Namespace is that of the lock. Empty if it is not known.
	Namespace string
	// Key is that of the lock that the call is about, as far as it is known. It need not be valid.
	Key v1alpha1.FullKey
	// FencingToken is the number of the grant that was made or renewed; zero if there is none.
	FencingToken int64
	// Outcome is OK or the code of an error, one of a bounded number of texts.
	Outcome string
	// Status is that of the answer.
	Status int
}

// End ends the span of the call. A call whose trace was never begun is one by its headers. The context is
// that of the request.
func (c *Call) End(ctx context.Context, result Result) {
	if c == nil || c.isDeclined {
		return
	}
	if c.span == nil {
		_ = c.Begin(ctx, ParentOfHeaders(ctx, c.request.Header))
	}
	if c.span == nil || !c.span.IsRecording() {
		return
	}
	c.span.SetName(c.door + " " + result.Operation)
	attributes := make([]attribute.KeyValue, 0, 9)
	attributes = append(attributes, doorKey.String(c.door), httpMethod.String(knownMethod(c.request.Method)), operationKey.String(result.Operation), outcomeKey.String(result.Outcome), httpStatus.Int(result.Status))
	if result.Function != "" {
		attributes = append(attributes, functionKey.String(text(result.Function)))
	}
	if result.Namespace != "" {
		attributes = append(attributes, namespaceKey.String(text(result.Namespace)))
	}
	if bare := result.Key.Bare(); bare != "" {
		attributes = append(attributes, lockKey.String(text(bare)))
	}
	if result.FencingToken != 0 {
		attributes = append(attributes, fencingKey.Int64(result.FencingToken))
	}
	c.span.SetAttributes(attributes...)
	if result.Outcome != okOutcome {
		failAs(c.span, result.Outcome)
	}
	c.span.End()
}

// knownMethod bounds the methods, of which clients can make up any number.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return otherError
}

// chosenTraceKey is the key of the id that a caller has chosen for a new trace.
type chosenTraceKey struct{}

// ChosenTraceID returns the id that a new trace in ctx is to have, if its caller has chosen one.
func ChosenTraceID(ctx context.Context) (id trace.TraceID, ok bool) {
	id, ok = ctx.Value(chosenTraceKey{}).(trace.TraceID)
	return id, ok
}
