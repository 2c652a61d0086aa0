package forrst

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"time"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/forward"
	"forrst.dev/lock-operator/tracing"
)

// tracingData is the data of the tracing extension (docs/forrst.md, section 10.2).
type tracingData struct {
	TraceID  string            `json:"trace_id"`
	SpanID   string            `json:"span_id"`
	Duration envelope.Duration `json:"duration"`
}

// beginTrace finds out to which trace the call belongs. Faults in tracing never fail a
// call: what is missing or wrong is made up.
func (c *call) beginTrace(ctx context.Context, header http.Header) context.Context {
	trace := forward.TraceOfHeaders(header)
	if position := c.position(envelope.Tracing); position >= 0 {
		trace = c.traceOfOptions(position, trace)
		c.decorate = append(c.decorate, func() { c.reportTrace(position, trace) })
	}
	ctx = c.beginSpan(ctx, trace, header)
	traceID, span, flags, isSent := c.trace.IDs()
	switch {
	case isSent && trace == nil:
		// What runs in another service belongs to the trace, too.
		return forward.WithTrace(ctx, &forward.Trace{ID: traceID, Span: span, Flags: flags})
	case isSent:
		trace.W3CID, trace.Span, trace.Flags = traceID, span, flags
	case trace != nil:
		trace.Span = forward.NewSpanID()
	default:
		return ctx
	}
	return forward.WithTrace(ctx, trace)
}

// beginSpan begins the span of the call that is sent, within the trace, which may be nil.
func (c *call) beginSpan(ctx context.Context, trace *forward.Trace, header http.Header) context.Context {
	switch {
	case c.trace == nil:
		return ctx
	case trace == nil:
		return c.trace.Begin(ctx, tracing.ParentOfHeaders(ctx, header))
	}
	return c.trace.Begin(ctx, tracing.NewParent(trace.ID, trace.Parent, trace.Flags, trace.State))
}

// endTrace tells what has come of the call, whose answer has the status.
func (c *call) endTrace(ctx context.Context, status int) {
	if c.trace == nil {
		return
	}
	result := tracing.Result{
		Operation: cmp.Or(c.operation(), unknownClass), Namespace: c.caller.Namespace, Key: c.refusedLock(),
		FencingToken: c.fencing, Outcome: outcomeOf(c.response), Status: status,
	}
	if c.function != nil {
		result.Function = c.request.Call.Function
	}
	c.trace.End(ctx, result)
}

// traceOfOptions completes the trace of the headers, which may be nil, by the options,
// which count for more.
func (c *call) traceOfOptions(position int, header *forward.Trace) *forward.Trace {
	var ignored envelope.Errors
	fields := c.readOptions(position, &ignored)
	trace := header
	if id, ok := fields.Text("trace_id"); trace == nil || ok && id != trace.ID {
		// The headers, if any, are about another trace.
		trace = forward.NewTrace(id)
	}
	if parent, ok := fields.Text("span_id"); ok {
		trace.Parent = parent
	}
	// Options are part of the body, which must not stay in memory for their sake.
	trace.Baggage = bytes.Clone(fields.Object("baggage"))
	return trace
}

func (c *call) reportTrace(position int, trace *forward.Trace) {
	c.report(position, tracingData{
		TraceID:  trace.ID,
		SpanID:   trace.Span,
		Duration: envelope.NewMilliseconds(c.elapsed()),
	})
}

// elapsed is how long the call has been here. The clock may have been corrected
// meanwhile.
func (c *call) elapsed() time.Duration { return max(0, c.config.Clock.Since(c.start)) }
