package forward

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/routes"
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
