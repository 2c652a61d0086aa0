package forward

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/routes"
)

// healthRequest is what services are asked. Any answer that speaks the protocol will do.
var healthRequest = envelope.Request{
	Protocol: envelope.Spoken,
	ID:       "health",
	Call:     envelope.Call{Function: "urn:cline:forrst:fn:ping"},
}

// Service is a service that functions are routed to.
type Service struct {
	// Name is such as "payments_api", after the first part of the host, or after its address.
	// Where that is the same for several, further ones are named after the whole host with
	// its port.
	Name string
	// Check returns nil if the service speaks the protocol, whether it has a ping or not, and
	// a [*CallError] otherwise, which has a Status if it answers.
	Check func(ctx context.Context) error
}

// maxHealthAnswer is as much of an answer to a ping as is read.
const maxHealthAnswer = 64 << 10

// healthRoom is for one answer to a ping: checks belong to no caller.
type healthRoom struct{ taken int64 }

// Take implements [Room].
func (r *healthRoom) Take(size int64) error {
	if r.taken += size; r.taken > maxHealthAnswer {
		return fmt.Errorf("an answer to a ping has more than %d bytes", maxHealthAnswer)
	}
	return nil
}

// Services returns the services of routes, each once.
func (c *Client) Services(all []routes.Route) []Service {
	var services []Service
	urls, names := map[string]bool{}, map[string]bool{}
	for _, route := range all {
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
		services = append(services, Service{name, func(ctx context.Context) error {
			_, err := c.do(ctx, route, healthRequest.ID, envelope.AppendRequest(nil, &healthRequest), http.Header{}, new(healthRoom))
			return err
		}})
	}
	return services
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
