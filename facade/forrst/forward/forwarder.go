package forward

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/routes"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock/servertime"
)

// Background runs what goes on after the calls that it was begun for, in goroutines of its own. The context ends when the
// function must return.
type Background interface {
	Run(function func(ctx context.Context))
}

// Forwarder calls functions that run in other services. All fields are required. It is safe for concurrent use.
type Forwarder struct {
	// Client calls the services.
	Client *Client
	// IsHandled reports whether the façade itself does what an extension asks for. Services are not asked for it again, except
	// that time and traces count on both sides.
	IsHandled func(urn string) bool
	// MaxTTL is the longest that a lock may live unless it is renewed.
	MaxTTL time.Duration
	// Pause returns how long after a grant or a renewal, and so many failures since, a lock with the ttl is renewed;
	// [lock.RenewalPause] outside tests.
	Pause func(ttl time.Duration, failures int) time.Duration
	// Clock tells the time by which locks expire. Its timers measure how long functions run.
	Clock clock.WithTicker
	// Background keeps locks for functions whose callers have gone.
	Background Background
	// Logger gets what callers are not told about failures.
	Logger logr.Logger
}

// Call is a call of a function that runs in another service.
type Call struct {
	// Request is that of the caller.
	Request envelope.Request
	// Route leads to the service.
	Route routes.Route
	// Caller is the identity of the caller, and Namespace the one that the call is about, which may be empty.
	Caller, Namespace string
	// FullKey is that of the lock around the function. Empty if there is none.
	FullKey v1alpha1.FullKey
	// FencingToken is the number of the grant of the lock around the function, or zero.
	FencingToken int64
	// Lock ends with the function. Nil if there is none, or if it stays.
	Lock *Lock
	// Trace is where the call belongs in a distributed trace. Nil if the caller told of none, and then its request has no
	// tracing extension.
	Trace *Trace
	// Answer is where the answer takes its memory from. Required.
	Answer Room
}

// Do calls the service and waits for its answer, until the timeout of the route. The response is one for the caller;
// isUnstarted says that the function cannot have begun. The error is a [*envelope.Error] about the service, that of ctx if it
// ended, or an internal one.
//
// Inside a lock, the lock is renewed meanwhile, and the service is listened to until the timeout even if ctx ends: its answer
// tells that the function is over. [Lock.End] must be called when Do has returned.
func (f *Forwarder) Do(ctx context.Context, call *Call) (response *envelope.Response, isUnstarted bool, err error) {
	request := f.request(ctx, call)
	if call.Lock == nil {
		response, err = f.Client.do(ctx, call.Route, request.ID, request.encode(), request.header, call.Answer)
	} else {
		response, err = f.doLocked(ctx, call, request)
	}
	failure, isFailure := errors.AsType[*CallError](err)
	switch {
	case err == nil:
		request.translate(response, f.IsHandled)
		// A service that does not have the function cannot have started it.
		return response, slices.ContainsFunc(response.Errors, func(problem envelope.Error) bool {
			return problem.Code == envelope.FunctionNotFound || problem.Code == envelope.VersionNotFound
		}), nil
	case ctx.Err() != nil:
		// The caller does not wait any more.
		err = ctx.Err()
	case isFailure:
		f.Logger.Info("The service of a routed function has failed",
			"function", call.Request.Call.Function, "url", call.Route.URL, "kind", failure.Kind, "reason", failure.Error())
		err = failure.problem(call.Route)
	}
	return nil, isFailure && failure.IsUnsent, err
}

// request is what the service of a routed function is sent.
type request struct {
	envelope.Request

	header    http.Header
	positions []int // those of the extensions in the request of the caller
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
	const others = 1 << 10 // Most requests have less beside arguments and context.
	return envelope.AppendRequest(make([]byte, 0, others+len(r.Call.Arguments)+len(r.Context)), &r.Request)
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
