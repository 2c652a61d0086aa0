package forrst

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/forward"
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
	if trace == nil {
		return ctx
	}
	trace.Span = forward.NewSpanID()
	return forward.WithTrace(ctx, trace)
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
