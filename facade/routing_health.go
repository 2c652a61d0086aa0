package facade

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/routes"
)

// healthCall is what services are asked. Any answer that speaks the protocol will do.
var healthCall = forrst.Request{
	Protocol: forrst.Protocol{Name: forrst.ProtocolName, Version: forrst.ProtocolVersion},
	ID:       "health",
	Call:     forrst.Call{Function: "urn:cline:forrst:fn:ping"},
}

// Components implements [ComponentSource]. They are the services that functions are routed
// to, named as "payments_api" after the first part of their hosts or, where that is the
// same, after the whole.
func (r *Routing) Components() []Component {
	var components []Component
	urls, names := map[string]bool{}, map[string]bool{}
	for _, route := range r.Routes.Routes() {
		if urls[route.URL] {
			continue
		}
		first, _, _ := strings.Cut(route.Host, ".")
		first, _, _ = strings.Cut(first, ":")
		name := first + "_api"
		if names[name] {
			name = route.Host + "_api"
		}
		if names[name] {
			name = route.URL
		}
		urls[route.URL], names[name] = true, true
		components = append(components, Component{Name: name, Check: func(ctx context.Context) error { return r.check(ctx, route) }})
	}
	return components
}

// check asks a service for a sign of life. Whether it has a ping does not matter.
func (r *Routing) check(ctx context.Context, route routes.Route) error {
	route.Timeout = min(route.Timeout, healthCheckTimeout)
	_, err := r.Client.Do(ctx, route, routes.Call{ID: healthCall.ID, Body: forrst.AppendRequest(nil, &healthCall)})
	if failure, ok := errors.AsType[*routes.CallError](err); ok && failure.Status > 0 {
		return fmt.Errorf("%w: %w", ErrDegraded, err)
	}
	return err
}
