package forward

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock/servertime"
)

// request is what the service of a routed function is sent.
type request struct {
	envelope.Request

	header http.Header
	// positions are those of the extensions in the request of the caller.
	positions []int
}

// request prepares the request of a call for its service, whose caller is the façade
// (docs/forrst.md, section 15).
func (f *Forwarder) request(ctx context.Context, call *Call) *request {
	r := &request{Request: call.Request, header: http.Header{}}
	r.Protocol = envelope.Protocol{Name: envelope.ProtocolName, Version: envelope.ProtocolVersion}
	r.Context = envelope.WithMember(call.Request.Context, "caller", envelope.MustEncode(wire.ServiceName))
	r.Extensions = nil
	span := ""
	trace, isTraced := TraceOf(ctx)
	if isTraced {
		span = NewSpanID()
		trace.addTo(r.header, span)
	}
	for position, extension := range call.Request.Extensions {
		switch name := envelope.ExtensionName(extension.URN); {
		case name == envelope.Tracing:
			extension.Options = trace.options(span)
		case name == envelope.Deadline:
			// The caller waits no longer than for the timeout of the route.
			left := call.Route.Timeout
			if deadline, ok := ctx.Deadline(); ok {
				left = min(left, deadline.Sub(servertime.Timers(f.Clock).Now()))
			}
			extension.Options = envelope.MustEncode(envelope.NewMilliseconds(max(left, time.Millisecond)))
		case f.IsHandled(extension.URN):
			continue
		}
		r.Extensions = append(r.Extensions, extension)
		r.positions = append(r.positions, position)
	}
	if call.FencingToken > 0 {
		r.header.Set(wire.FencingHeader, strconv.FormatInt(call.FencingToken, 10))
	}
	return r
}

func (r *request) encode() []byte {
	const perElement = 64
	size := 256 + len(r.ID) + len(r.Call.Function) + len(r.Call.Arguments) + len(r.Context)
	for i := range r.Extensions {
		size += perElement + len(r.Extensions[i].URN) + len(r.Extensions[i].Options)
	}
	return envelope.AppendRequest(make([]byte, 0, size), &r.Request)
}
