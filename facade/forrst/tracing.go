package forrst

import (
	"bytes"
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

// beginTrace finds out to which trace the call belongs. Faults in tracing never fail a call: what is missing or wrong is made
// up.
func (c *call) beginTrace() {
	trace := forward.TraceOfHeaders(c.Request.Header)
	if position := c.position(envelope.Tracing); position >= 0 {
		trace = c.traceOfOptions(position, trace)
		c.decorate = append(c.decorate, func() {
			c.report(position, tracingData{trace.ID, trace.Span, envelope.NewMilliseconds(c.elapsed())})
		})
	}
	ctx := c.Request.Context()
	switch {
	case c.Trace == nil:
	case trace == nil:
		ctx = c.Trace.Begin(ctx, tracing.ParentOfHeaders(ctx, c.Request.Header))
	default:
		ctx = c.Trace.Begin(ctx, tracing.NewParent(trace.ID, trace.Parent, trace.Flags, trace.State))
	}
	traceID, span, flags, isSent := c.Trace.IDs()
	switch {
	case isSent && trace == nil:
		// What runs in another service belongs to the trace, too.
		trace = &forward.Trace{ID: traceID, Span: span, Flags: flags}
	case isSent:
		trace.W3CID, trace.Span, trace.Flags = traceID, span, flags
	case trace != nil:
		trace.Span = forward.NewSpanID()
	}
	c.trace = trace
	if ctx != c.Request.Context() {
		c.Request = c.Request.WithContext(ctx)
	}
}

// traceOfOptions completes the trace of the headers, which may be nil, by the options, which count for more.
func (c *call) traceOfOptions(position int, header *forward.Trace) *forward.Trace {
	fields := c.readOptions(position, new(envelope.Errors))
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

// elapsed is how long the call has been here. The clock may have been corrected meanwhile.
func (c *call) elapsed() time.Duration { return max(0, c.config.Clock.Since(c.Start)) }
