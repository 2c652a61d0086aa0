package forward

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
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

// request prepares the request of a call for its service, whose caller is the façade (docs/forrst.md, section 15).
func (f *Forwarder) request(ctx context.Context, call *Call) *request {
	r := &request{Request: call.Request, header: call.identity()}
	r.Protocol = envelope.Spoken
	r.Context = envelope.WithMember(call.Request.Context, "caller", envelope.MustEncode(wire.ServiceName))
	r.Extensions = nil
	span := ""
	if call.Trace != nil {
		span = NewSpanID()
		call.Trace.addTo(r.header, span)
	}
	for position, extension := range call.Request.Extensions {
		switch name := envelope.ExtensionName(extension.URN); {
		case name == envelope.Tracing:
			extension.Options = call.Trace.options(span)
		case name == envelope.Deadline:
			// The caller waits no longer than for the timeout of the route.
			left := call.Route.Timeout
			if deadline, ok := ctx.Deadline(); ok {
				left = min(left, deadline.Sub(servertime.Timers(f.Clock).Now()))
			}
			extension.Options = envelope.MustEncode(envelope.NewMilliseconds(max(left, time.Millisecond)))
		case f.IsHandled(extension.URN), extension.URN == wire.FencingURN, extension.URN == wire.LostURN:
			// What is said in the words of the façade, only the façade says.
			continue
		}
		r.Extensions = append(r.Extensions, extension)
		r.positions = append(r.positions, position)
	}
	return r
}

// identity returns the headers by which the service learns what the façade knows of the caller. A request to a service has no
// header of the caller's.
func (c *Call) identity() http.Header {
	header := http.Header{}
	header.Set(wire.CallerHeader, headerText(c.Caller))
	if c.Namespace != "" {
		header.Set(wire.NamespaceHeader, c.Namespace)
	}
	if c.FullKey != "" {
		header.Set(wire.FullKeyHeader, headerText(string(c.FullKey)))
	}
	if c.FencingToken > 0 {
		header.Set(wire.FencingHeader, strconv.FormatInt(c.FencingToken, 10))
	}
	return header
}

// headerText percent-encodes what a header cannot carry unchanged through every server: all but visible ASCII, and the
// percent sign.
func headerText(text string) string {
	var encoded strings.Builder
	for _, char := range []byte(text) {
		if char <= ' ' || char >= 0x7f || char == '%' {
			fmt.Fprintf(&encoded, "%%%02X", char)
		} else {
			encoded.WriteByte(char)
		}
	}
	return encoded.String()
}

func (r *request) encode() []byte {
	const perElement = 64
	size := 256 + len(r.ID) + len(r.Call.Function) + len(r.Call.Arguments) + len(r.Context)
	for i := range r.Extensions {
		size += perElement + len(r.Extensions[i].URN) + len(r.Extensions[i].Options)
	}
	return envelope.AppendRequest(make([]byte, 0, size), &r.Request)
}

// translate makes the response of the service one for the caller: without entries of the extensions that the façade itself
// reports on, since callers look entries up by URN, and with places in the request as the caller numbers them. Advice on
// retries is the service's to give.
func (r *request) translate(response *envelope.Response, isHandled func(urn string) bool) {
	response.Extensions = slices.DeleteFunc(response.Extensions, func(entry envelope.ResponseExtension) bool {
		return envelope.ExtensionName(entry.URN) != envelope.Retry && isHandled(entry.URN) ||
			entry.URN == wire.FencingURN || entry.URN == wire.LostURN
	})
	for i := range response.Errors {
		r.relocate(response.Errors[i].Source)
	}
}

const extensionsPointer = "/extensions/"

// relocate makes a pointer to an extension of the forwarded request one to that of the caller's.
func (r *request) relocate(source *envelope.Source) {
	if source == nil || source.Pointer == nil {
		return
	}
	rest, ok := strings.CutPrefix(*source.Pointer, extensionsPointer)
	if !ok {
		return
	}
	index, _, _ := strings.Cut(rest, "/")
	position, err := strconv.Atoi(index)
	if err == nil && 0 <= position && position < len(r.positions) {
		source.Pointer = new(extensionsPointer + strconv.Itoa(r.positions[position]) + rest[len(index):])
	}
}
