// Package describe holds the documents in which the Forrst door tells about itself: those of describe, in both dialects, and
// capabilities (docs/forrst.md, sections 9.3 and 9.4).
//
// The functions are described in functions.yaml. The package adds what depends on the configuration: the version of the
// service, its limits and the functions of other services.
package describe

import (
	"cmp"
	_ "embed"
	"maps"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
)

// Object is a JSON object.
type Object = map[string]any

// formVersion is the version of the form of documents.
const formVersion = "0.1.0"

// Service is what the documents tell of the configuration.
type Service struct {
	// Version is the version of the service. Empty means unknown.
	Version string
	// NeedsReason says that a forced release needs a reason.
	NeedsReason bool
	// MaxRequestBytes is the size of the largest request.
	MaxRequestBytes int
	// MaxBlock is the longest wait for a lock that one call may ask for.
	MaxBlock time.Duration
}

//go:embed functions.yaml
var functionsYAML []byte

// static is functions.yaml.
type static struct {
	// Errors are those of all functions.
	Errors []any `json:"errors"`
	// Routed is a function that runs in another service. Its version, arguments, result and side effects are not known.
	Routed    Object   `json:"routed"`
	Functions []Object `json:"functions"`
	// Schemas are those of the options of extensions.
	Schemas Object `json:"schemas"`
}

// read reads functions.yaml once. Callers must not change what it returns.
var read = sync.OnceValue(func() *static {
	document := &static{}
	if err := yaml.Unmarshal(functionsYAML, document); err != nil {
		panic("describe: functions.yaml: " + err.Error())
	}
	for _, function := range slices.Concat(document.Functions, []Object{document.Routed}) {
		errors, _ := function["errors"].([]any)
		function["errors"], function["discoverable"] = slices.Concat(document.Errors, errors), true
	}
	for _, function := range document.Functions {
		function["version"], function["stability"] = wire.FunctionVersion, "stable"
		function["result"].(Object)["collection"] = false
		for _, list := range []string{"arguments", "side_effects"} {
			if function[list] == nil {
				function[list] = []any{}
			}
		}
	}
	return document
})

// Document describes all functions, and those of other services by the names in routed.
func (s Service) Document(routed []string, withSchemas bool) Object {
	functions := make([]Object, 0, len(read().Functions)+len(routed))
	for _, function := range read().Functions {
		functions = append(functions, s.describe(function, withSchemas))
	}
	for _, name := range routed {
		functions = append(functions, Routed(name))
	}
	document := Object{
		"forrst":    envelope.ProtocolVersion,
		"describe":  formVersion,
		"info":      Object{"title": wire.ServiceName, "version": cmp.Or(s.Version, "0.0.0")},
		"servers":   []Object{{"name": wire.ServiceName, "url": wire.Path}},
		"functions": functions,
	}
	if withSchemas {
		document["components"] = Object{"schemas": read().Schemas}
	}
	return document
}

// Function describes the function with the preferred name.
func (s Service) Function(name string, withSchemas bool) Object {
	functions := read().Functions
	at := slices.IndexFunc(functions, func(function Object) bool { return function["name"] == name })
	return s.describe(functions[at], withSchemas)
}

func (s Service) describe(function Object, withSchemas bool) Object {
	function = maps.Clone(function)
	arguments := slices.Clone(function["arguments"].([]any))
	for i := range arguments {
		argument := maps.Clone(arguments[i].(Object))
		if s.NeedsReason && function["name"] == wire.ForceRelease && argument["name"] == "reason" {
			schema := maps.Clone(argument["schema"].(Object))
			schema["pattern"] = `[^\s\v\x85\p{Z}]` // Not `\S`, which means other characters in each dialect of patterns.
			argument["required"], argument["schema"] = true, schema
		}
		if !withSchemas {
			delete(argument, "schema")
		}
		arguments[i] = argument
	}
	function["arguments"] = arguments
	if !withSchemas {
		delete(function, "result")
	}
	return function
}

// Routed describes a function that runs in another service.
func Routed(name string) Object {
	function := maps.Clone(read().Routed)
	function["name"] = name
	return function
}

// Versions describes a function, for which the caller asked by that name, as the describe function does: all its versions,
// and the recommended one once more. It has schemas if the function has them.
func Versions(function Object, asked string) Object {
	described := maps.Clone(function)
	described["function"], described["description"], described["versions"] = asked, function["summary"], []Object{}
	if function["version"] == nil {
		return described
	}
	version := Object{"version": function["version"], "stability": function["stability"], "description": function["summary"]}
	if function["extensions"] != nil {
		version["extensions"] = function["extensions"]
	}
	if result, ok := function["result"].(Object); ok {
		arguments := schemaOf(function["arguments"].([]any))
		version["schema"] = Object{"arguments": arguments, "returns": result["schema"], "definitions": Object{}}
	}
	described["versions"], described["recommended_version"] = []Object{version}, function["version"]
	return described
}

// schemaOf returns the schema of an object with the arguments.
func schemaOf(arguments []any) Object {
	schema, properties, required := Object{"type": "object"}, Object{}, []any{}
	for _, each := range arguments {
		argument := each.(Object)
		property := maps.Clone(argument["schema"].(Object))
		if argument["description"] != nil {
			property["description"] = argument["description"]
		}
		properties[argument["name"].(string)] = property
		if argument["required"] == true {
			required = append(required, argument["name"])
		}
	}
	if len(properties) > 0 {
		schema["properties"] = properties
	}
	if len(required) > 0 {
		schema["required"] = required
	}
	return schema
}

// InCamelCase returns what Document, Function or Routed has returned in the dialect of the discovery extension.
func InCamelCase(described Object) Object {
	described = maps.Clone(described)
	if described["describe"] != nil {
		delete(described, "describe")
		described["discovery"] = formVersion
	}
	if effects := described["side_effects"]; effects != nil {
		delete(described, "side_effects")
		described["sideEffects"] = effects
	}
	if functions, ok := described["functions"].([]Object); ok {
		changed := make([]Object, len(functions))
		for i, function := range functions {
			changed[i] = InCamelCase(function)
		}
		described["functions"] = changed
	}
	return described
}

// Capabilities tells what the service offers, in the spellings of both pages that describe it: the names of all functions,
// the prefixes, with an asterisk each, of functions of other services, and the URNs of the extensions that requests may have.
func (s Service) Capabilities(functions, prefixes, urns []string) Object {
	var extensions []Object
	for _, urn := range append(urns,
		// Requests do not have these: the first two offer functions, the last is in responses.
		"urn:cline:forrst:ext:diagnostics", "urn:forrst:ext:diagnostics",
		"urn:cline:forrst:ext:discovery", "urn:forrst:ext:discovery", wire.FencingURN) {
		extensions = append(extensions, Object{"urn": urn, "version": wire.FunctionVersion})
	}
	versions := []string{envelope.ProtocolVersion}
	offer := Object{
		"service":           wire.ServiceName,
		"protocol_versions": versions,
		"protocolVersions":  versions,
		"functions":         functions,
		"extensions":        extensions,
		"limits": Object{
			"max_request_bytes": s.MaxRequestBytes,
			"maxRequestSize":    s.MaxRequestBytes,
			"max_depth":         envelope.MaxDepth,
			"max_block":         envelope.NewDuration(s.MaxBlock),
		},
	}
	if s.Version != "" {
		offer["version"] = s.Version
	}
	if len(prefixes) > 0 {
		offer["function_prefixes"] = prefixes
	}
	return offer
}
