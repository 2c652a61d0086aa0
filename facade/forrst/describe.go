package forrst

import (
	"context"
	"slices"
	"strings"

	"forrst.dev/lock-operator/facade/forrst/describe"
	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// unenveloped is the result of a function whose answer is the result alone.
type unenveloped struct{ result any }

// describedService is what the documents of package describe tell of the configuration.
func (h *Handler) describedService() describe.Service {
	return describe.Service{
		Version:         h.config.Version,
		NeedsReason:     h.config.Access.AuthenticatesCallers(),
		MaxRequestBytes: MaxRequestBytes,
		MaxBlock:        h.config.MaxBlock,
	}
}

func (c *call) prepareCapabilities() Invocation {
	return func(context.Context) (any, error) {
		routed, prefixes := c.routedFunctions()
		functions := slices.Concat(c.functions.names, routed)
		return c.describedService().Capabilities(functions, prefixes, supportedURNs()), nil
	}
}

// prepareDescribe answers with an envelope.
func (c *call) prepareDescribe() Invocation {
	return c.prepareDescription(
		func(document describe.Document) any { return document },
		func(function describe.Function, asked string) any { return function.Versions(asked) },
	)
}

// prepareDiscoveryDescribe answers without an envelope, and so without a place for the entry of the lock extension.
func (c *call) prepareDiscoveryDescribe() Invocation {
	return c.prepareDescription(
		func(document describe.Document) any { return unenveloped{document.InCamelCase()} },
		func(function describe.Function, _ string) any { return unenveloped{function.InCamelCase()} },
	)
}

// prepareDescription answers in the dialect that all and one have.
func (c *call) prepareDescription(
	all func(describe.Document) any, one func(function describe.Function, asked string) any,
) Invocation {
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
		switch {
		case name == "":
			routed, _ := c.routedFunctions()
			return all(c.describedService().Document(routed, withSchemas)), nil
		case isRouted:
			return one(describe.Routed(name), name), nil
		}
		return one(c.describedService().Function(found.names[0], withSchemas), name), nil
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
