package forrst

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/routes"
)

// healthCall is what services are asked. Any answer that speaks the protocol will do.
var healthCall = envelope.Request{
	Protocol: envelope.Protocol{Name: envelope.ProtocolName, Version: envelope.ProtocolVersion},
	ID:       "health",
	Call:     envelope.Call{Function: "urn:cline:forrst:fn:ping"},
}

// Components implements [ComponentSource]. They are the services that functions are routed
// to, named as "payments_api" after the first part of their hosts, or after their
// addresses. Where that is the same, they are named after the whole host with its port.
func (r *Routing) Components() []Component {
	var components []Component
	urls, names := map[string]bool{}, map[string]bool{}
	for _, route := range r.Routes.Routes() {
		if urls[route.URL] {
			continue
		}
		name := shortHost(route.Host) + "_api"
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

// shortHost returns the first part of a host name, or an address without its port.
func shortHost(host string) string {
	// The host of a URL has brackets around an IPv6 address, port or not.
	name := (&url.URL{Host: host}).Hostname()
	if _, err := netip.ParseAddr(name); err == nil {
		return name
	}
	first, _, _ := strings.Cut(name, ".")
	return first
}

// check asks a service for a sign of life. Whether it has a ping does not matter.
func (r *Routing) check(ctx context.Context, route routes.Route) error {
	route.Timeout = min(route.Timeout, healthCheckTimeout)
	_, err := r.Client.Do(ctx, route, routes.Call{ID: healthCall.ID, Body: envelope.AppendRequest(nil, &healthCall)})
	if failure, ok := errors.AsType[*routes.CallError](err); ok && failure.Status > 0 {
		return fmt.Errorf("%w: %w", ErrDegraded, err)
	}
	return err
}
