package forrst

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/routes"
	"forrst.dev/lock-operator/facade/forrst/wire"
)

// forwardedRequest is the request that the service of a routed function gets.
type forwardedRequest struct {
	envelope.Request

	header http.Header
	// positions are those of the extensions in the request of the caller.
	positions []int
}

// forwarded prepares the request of a call for the service that its function runs in:
// the caller is now the façade (section 7), and what the façade does itself is not asked
// for again, except that time and traces count on both sides.
func (c *call) forwarded(ctx context.Context, route routes.Route) forwardedRequest {
	request := forwardedRequest{Request: c.request, header: http.Header{}}
	request.Protocol = envelope.Protocol{Name: envelope.ProtocolName, Version: envelope.ProtocolVersion}
	request.Context = envelope.WithMember(c.request.Context, "caller", envelope.MustEncode(wire.ServiceName))
	request.Extensions = nil
	span := ""
	trace, isTraced := TraceOf(ctx)
	if isTraced {
		span = randomHex(spanIDDigits)
		trace.addTo(request.header, span)
	}
	for position, extension := range c.request.Extensions {
		switch name := envelope.ExtensionName(extension.URN); {
		case name == envelope.Tracing:
			extension.Options = trace.options(span)
		case name == envelope.Deadline:
			extension.Options = c.remaining(ctx, route)
		case phase(name) >= 0:
			continue
		}
		request.Extensions = append(request.Extensions, extension)
		request.positions = append(request.positions, position)
	}
	c.addFencing(request.header)
	return request
}

func (r *forwardedRequest) call() routes.Call {
	const perElement = 64
	size := 256 + len(r.ID) + len(r.Call.Function) + len(r.Call.Arguments) + len(r.Context)
	for i := range r.Extensions {
		size += perElement + len(r.Extensions[i].URN) + len(r.Extensions[i].Options)
	}
	return routes.Call{ID: r.ID, Body: envelope.AppendRequest(make([]byte, 0, size), &r.Request), Header: r.header}
}

// remaining is what is left of the deadline of the call. Nobody waits for longer than the
// timeout of the route.
func (c *call) remaining(ctx context.Context, route routes.Route) json.RawMessage {
	left := route.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, deadline.Sub(c.config.Timers.Now()))
	}
	return envelope.MustEncode(envelope.NewMilliseconds(max(left, time.Millisecond)))
}

// forwardedTrace are the options by which a trace goes on (section 10.2).
type forwardedTrace struct {
	TraceID      string          `json:"trace_id"`
	SpanID       string          `json:"span_id"`
	ParentSpanID string          `json:"parent_span_id"`
	Baggage      json.RawMessage `json:"baggage,omitempty"`
}

// options ask the next service to belong to the trace, in the span of the call to it.
func (t *Trace) options(span string) json.RawMessage {
	return envelope.MustEncode(forwardedTrace{t.ID, span, t.Span, t.Baggage})
}

// addTo adds the headers by which a trace goes on.
func (t *Trace) addTo(header http.Header, span string) {
	if isHeaderSafe(t.ID) {
		header.Set("X-Forrst-Trace-Id", t.ID)
		header.Set("X-Forrst-Span-Id", span)
		header.Set("X-Forrst-Parent-Span-Id", t.Span)
	}
	if parent, ok := t.Traceparent(); ok {
		header.Set("Traceparent", parent)
		if t.State != "" {
			header.Set("Tracestate", t.State)
		}
	}
}

// addFencing tells the service the number of the grant, by which what it guards can
// refuse those whose lock has ended.
func (c *call) addFencing(header http.Header) {
	if c.fencing > 0 {
		header.Set(wire.FencingHeader, strconv.FormatInt(c.fencing, 10))
	}
}
