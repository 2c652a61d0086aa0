package forrst

import (
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/routes"
)

// Routing is how functions are found and called that run in other services.
type Routing struct {
	// Routes finds the service of a function. Required.
	Routes Routes
	// Client calls the services. Required.
	Client *routes.Client
}

// Routes finds the service that a function runs in. It is safe for concurrent use.
// [*routes.File] and [*routes.Table] implement it.
type Routes interface {
	// Find returns the route of a function. It reports false if the function has none.
	Find(function string) (routes.Route, bool)
	// Routes returns all routes.
	Routes() []routes.Route
}

// route finds where a function runs that is not served here.
func (h *Handler) route(function string) (routes.Route, bool) {
	if h.config.Routing == nil || h.functions.byName[function] != nil {
		return routes.Route{}, false
	}
	return h.config.Routing.Routes.Find(function)
}

// resolve finds the function of the call, here or elsewhere.
func (c *call) resolve() (*function, error) {
	route, ok := c.route(c.request.Call.Function)
	if ok {
		return &function{
			isRouted: true,
			prepare:  func(c *call) (Invocation, envelope.Errors) { return c.forwarding(route), nil },
		}, nil
	}
	found, problem := c.functions.find(c.request.Call.Function, c.request.Call.Version, "/call")
	if problem != nil {
		return nil, problem
	}
	return found, nil
}
