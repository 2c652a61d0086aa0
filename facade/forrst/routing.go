package forrst

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/forward"
	"forrst.dev/lock-operator/facade/forrst/routes"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/locks"
)

// Routing is how functions are found and called that run in other services.
type Routing struct {
	// Routes finds the service of a function. Required.
	Routes Routes
	// Client calls the services. Required.
	Client *forward.Client
}

// Routes finds the service that a function runs in. It is safe for concurrent use. [*routes.File] and [*routes.Table]
// implement it.
type Routes interface {
	// Find returns the route of a function. It reports false if the function has none.
	Find(function string) (routes.Route, bool)
	// Routes returns all routes.
	Routes() []routes.Route
}

// Components implements [ComponentSource]. They are the services that functions are routed to.
func (r *Routing) Components() []Component {
	var components []Component
	for _, service := range r.Client.Services(r.Routes.Routes()) {
		components = append(components, Component{Name: service.Name, Check: func(ctx context.Context) error {
			err := service.Check(ctx)
			if failure, ok := errors.AsType[*forward.CallError](err); ok && failure.Status > 0 {
				return fmt.Errorf("%w: %w", ErrDegraded, err)
			}
			return err
		}})
	}
	return components
}

// route finds where a function runs that is not served here.
func (h *Handler) route(function string) (routes.Route, bool) {
	if h.config.Routing == nil || h.functions.byName[function] != nil {
		return routes.Route{}, false
	}
	return h.config.Routing.Routes.Find(function)
}

// resolve finds the function of the call, here or in another service.
func (c *call) resolve() (*function, error) {
	route, ok := c.route(c.request.Call.Function)
	if ok {
		return &function{
			class:     routedClass,
			isRouted:  true,
			keepsBody: true,
			needsLock: route.NeedsLock,
			prepare: func(c *call) Invocation {
				c.checkDemands(&route)
				return func(ctx context.Context) (any, error) { return c.forward(ctx, route) }
			},
		}, nil
	}
	found, problem := c.functions.find(c.request.Call.Function, c.request.Call.Version, "/call")
	if problem != nil {
		return nil, problem
	}
	return found, nil
}

// checkDemands adds what the route of the function demands of the call and the call does not have.
func (c *call) checkDemands(route *routes.Route) {
	position, key := c.position(envelope.AtomicLock), c.requestedLock()
	switch {
	case !route.ServesNamespace(c.Caller.Namespace):
		c.faults.Add(envelope.Error{Code: envelope.Forbidden, Message: fmt.Sprintf("The function is not served to the namespace %q", c.Caller.Namespace)})
	case position < 0 && route.NeedsLock:
		c.faults.Add(envelope.Error{Code: envelope.InvalidRequest, Message: "The function runs inside a lock only: send the atomic lock extension"})
	case position >= 0 && key.Bare() != "" && !route.AllowsKey(key):
		c.faults.Add(envelope.Error{Code: envelope.InvalidArguments, Message: fmt.Sprintf(
			"key: the full key %q is none of those that the function runs inside: %s", key, strings.Join(route.FullKeys, ", "))}.
			At(optionsPointer(position) + "/key"))
	}
}

// forward calls the service of the function and makes its answer part of the response.
func (c *call) forward(ctx context.Context, route routes.Route) (any, error) {
	answer, isUnstarted, err := c.forwarder.Do(ctx, &forward.Call{
		Request: c.request, Route: route, Caller: c.Caller.Holder(), Namespace: c.Caller.Namespace,
		FullKey: c.fullKey, FencingToken: c.fencing, Lock: c.endingLock, Trace: c.trace, Answer: c.Body,
	})
	c.isUnstarted = isUnstarted
	if err != nil {
		return nil, err
	}
	c.response.Meta = answer.Meta
	c.response.Extensions = append(c.response.Extensions, answer.Extensions...)
	if len(answer.Errors) > 0 {
		c.isForeign = true
		return nil, answer.Errors
	}
	return answer.Result, nil
}

// routedLock returns the lock of a routed function, which ends with it.
func (c *call) routedLock(granted *v1alpha1.Lock, ttl time.Duration) *forward.Lock {
	// The lock can outlive the call, whose memory must not be kept for it.
	held, caller, key, owner := c.config.Locks, c.Caller, granted.Spec.FullKey(), granted.Spec.Owner
	function := strings.Clone(c.request.Call.Function)
	return &forward.Lock{
		Granted: granted,
		TTL:     ttl,
		Renew: func(ctx context.Context, ttl time.Duration) (*v1alpha1.Lock, error) {
			// Many functions inside locks with short ttls would cost more than their caller may ask for. A renewal for the rest
			// of the function is the last one.
			if ttl == 0 {
				if err := caller.Permit.Spend(ctx, limits.Upkeep); err != nil {
					return nil, err
				}
			}
			renewal, err := held.PrepareRenew(&caller, key, locks.OwnerClaim(owner), ttl)
			if err != nil {
				return nil, err
			}
			return renewal.Renew(ctx)
		},
		Release: func(ctx context.Context) error { return held.ReleaseAfter(ctx, function, &caller, key, owner) },
	}
}

// endRoutedLock ends the lock of a routed function, or leaves it to the background while the function may still be running.
// The background then keeps the permit of the call and the room of its body: callers who go away must not have more running,
// nor more in memory, than those who stay.
func (c *call) endRoutedLock(ctx context.Context, sentKey string) {
	permit, body := c.Caller.Permit, c.Body
	permit.Hold()
	release := sync.OnceFunc(permit.Release)
	defer func() { // Also after a panic.
		if !c.KeepsBody {
			release()
		}
	}()
	var lost string
	lost, c.KeepsBody = c.endingLock.End(ctx, func() {
		release()
		body.Forget()
	})
	if lost != "" {
		c.reportAs(wire.LostURN, wire.Lost{Key: sentKey, Reason: lost})
	}
}
