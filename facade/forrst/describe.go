package forrst

import (
	"context"
	"slices"
	"strings"

	"forrst.dev/lock-operator/facade/forrst/describe"
	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// describedService is what the documents of package describe tell of the configuration.
func (h *Handler) describedService() describe.Service {
	return describe.Service{
		Version: h.config.Version, NeedsReason: h.config.Access.AuthenticatesCallers(),
		MaxRequestBytes: MaxRequestBytes, MaxBlock: h.config.MaxBlock,
	}
}

func (c *call) prepareCapabilities() Invocation {
	return func(context.Context) (any, error) {
		routed, prefixes := c.routedFunctions()
		functions := slices.Concat(c.functions.names, routed)
		return c.describedService().Capabilities(functions, prefixes, supportedURNs()), nil
	}
}

// prepareDiscoveryDescribe answers without an envelope, and so without a place for the entry of the lock extension.
func (c *call) prepareDiscoveryDescribe() Invocation {
	c.isBare = true
	return c.prepareDescribe()
}

// prepareDescribe answers in the dialect of the one function or, if the answer is bare, of the other.
func (c *call) prepareDescribe() Invocation {
	before := len(c.faults)
	fields := c.readArguments(&c.faults)
	withSchemas := fields.Bool("include_schema", true)
	name, _ := fields.Text("function")
	version := fields.Version("version")
	_, isRouted := c.route(name)
	var found *function
	if name != "" && !isRouted && len(c.faults) == before {
		var problem *envelope.Error
		if found, problem = c.functions.find(name, version, argumentsPointer); problem != nil {
			c.faults.Add(*problem)
		}
	}
	return func(context.Context) (any, error) {
		var described describe.Object
		switch {
		case name == "":
			routed, _ := c.routedFunctions()
			described = c.describedService().Document(routed, withSchemas)
		case isRouted:
			described = describe.Routed(name)
		default:
			described = c.describedService().Function(found.names[0], withSchemas)
		}
		switch {
		case c.isBare:
			return describe.InCamelCase(described), nil
		case name != "":
			return describe.Versions(described, name), nil
		}
		return described, nil
	}
}

// routedFunctions returns the names of the functions that run in other services, and the prefixes, with an asterisk each,
// where only those are known. Both are in the order of the routes.
func (h *Handler) routedFunctions() (names, prefixes []string) {
	if h.config.Routing == nil {
		return nil, nil
	}
	for _, route := range h.config.Routing.Routes.Routes() {
		for _, pattern := range route.Functions {
			switch {
			case strings.HasSuffix(pattern, "*"):
				prefixes = append(prefixes, pattern)
			case h.functions.byName[pattern] == nil:
				names = append(names, pattern)
			}
		}
	}
	return names, prefixes
}
