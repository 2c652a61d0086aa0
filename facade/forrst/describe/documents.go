// Package describe holds the documents in which the Forrst door tells about itself: those of describe, in both dialects, and
// capabilities (docs/forrst.md, sections 9.3 and 9.4).
//
// The functions are described in functions.yaml. The package adds what depends on the configuration: the version of the
// service, its limits and the functions of other services.
package describe

import (
	"cmp"
	_ "embed"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/schema"
)

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

// Document describes the whole service. Describe is set in the dialect of the describe function, Discovery in that of the
// discovery extension.
type Document struct {
	Forrst    string `json:"forrst"`
	Describe  string `json:"describe,omitempty"`
	Discovery string `json:"discovery,omitempty"`
	Info      struct {
		Title   string `json:"title"`
		Version string `json:"version"`
	} `json:"info"`
	// Servers are where the service is reached.
	Servers   []Server   `json:"servers"`
	Functions []Function `json:"functions"`
	// Components has the schemas of the options of extensions.
	Components struct {
		Schemas map[string]schema.Schema `json:"schemas"`
	} `json:"components,omitzero"`
}

// Server is an address of the service.
type Server struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// Function describes one function. Of a function that runs in another service, version, arguments, result and side effects
// are not known.
type Function struct {
	Name      string     `json:"name"`
	Version   string     `json:"version,omitempty"`
	Stability string     `json:"stability,omitempty"`
	Summary   string     `json:"summary,omitempty"`
	Arguments []Argument `json:"arguments,omitzero"`
	// Result is nil in a document without schemas.
	Result      *Result     `json:"result,omitempty"`
	Errors      []Error     `json:"errors"`
	SideEffects []string    `json:"side_effects,omitzero"`
	Extensions  *Extensions `json:"extensions,omitempty"`
	// Discoverable is true.
	Discoverable bool `json:"discoverable"`
	// SideEffectsCamel is SideEffects in the dialect of the discovery extension.
	SideEffectsCamel []string `json:"sideEffects,omitzero"`
}

// Argument is one argument of a function.
type Argument struct {
	Name        string        `json:"name"`
	Required    bool          `json:"required"`
	Description string        `json:"description,omitempty"`
	Schema      schema.Schema `json:"schema,omitzero"`
}

// Result is what a function returns.
type Result struct {
	Schema      schema.Schema `json:"schema"`
	Collection  bool          `json:"collection"`
	Description string        `json:"description,omitempty"`
}

// Error is an error that a function may return.
type Error struct {
	Code    envelope.Code `json:"code"`
	Message string        `json:"message"`
}

// Extensions are the extensions that a function refuses.
type Extensions struct {
	Excluded []string `json:"excluded"`
}

// Versions describes one function as the describe function does: all its versions, and the recommended one once more.
type Versions struct {
	// Asked is the name by which the caller asked for the function.
	Asked       string    `json:"function"`
	Description string    `json:"description"`
	Versions    []Version `json:"versions"`
	Recommended string    `json:"recommended_version,omitempty"`
	Function
}

// Version describes one version of a function.
type Version struct {
	Version     string      `json:"version"`
	Stability   string      `json:"stability"`
	Description string      `json:"description,omitempty"`
	Schema      *Schemas    `json:"schema,omitempty"`
	Extensions  *Extensions `json:"extensions,omitempty"`
}

// Schemas are the schemas of a function.
type Schemas struct {
	Arguments   schema.Schema            `json:"arguments"`
	Returns     schema.Schema            `json:"returns"`
	Definitions map[string]schema.Schema `json:"definitions"`
}

//go:embed functions.yaml
var functionsYAML []byte

// static is functions.yaml.
type static struct {
	Errors    []Error                  `json:"errors"`
	Routed    Function                 `json:"routed"`
	Functions []Function               `json:"functions"`
	Schemas   map[string]schema.Schema `json:"schemas"`
}

// read reads functions.yaml once. Callers must not change what it returns.
var read = sync.OnceValue(func() *static {
	document := &static{}
	if err := yaml.Unmarshal(functionsYAML, document); err != nil {
		panic("describe: functions.yaml: " + err.Error())
	}
	for i := range document.Functions {
		function := &document.Functions[i]
		function.Version, function.Stability, function.Discoverable = wire.FunctionVersion, "stable", true
		function.Errors = slices.Concat(document.Errors, function.Errors)
		// Documents have these members even if they are empty.
		function.Arguments = append([]Argument{}, function.Arguments...)
		function.SideEffects = append([]string{}, function.SideEffects...)
	}
	document.Routed.Discoverable = true
	document.Routed.Errors = slices.Concat(document.Errors, document.Routed.Errors)
	return document
})

// Document describes all functions, and those of other services by the names in routed.
func (s Service) Document(routed []string, withSchemas bool) Document {
	document := Document{
		Forrst:   envelope.ProtocolVersion,
		Describe: formVersion,
		Servers:  []Server{{Name: wire.ServiceName, URL: wire.Path}},
	}
	document.Info.Title, document.Info.Version = wire.ServiceName, cmp.Or(s.Version, "0.0.0")
	if withSchemas {
		document.Components.Schemas = read().Schemas
	}
	for _, function := range read().Functions {
		document.Functions = append(document.Functions, s.describe(function, withSchemas))
	}
	for _, name := range routed {
		document.Functions = append(document.Functions, Routed(name))
	}
	return document
}

// Function describes the function with the preferred name.
func (s Service) Function(name string, withSchemas bool) Function {
	functions := read().Functions
	at := slices.IndexFunc(functions, func(function Function) bool { return function.Name == name })
	return s.describe(functions[at], withSchemas)
}

func (s Service) describe(function Function, withSchemas bool) Function {
	function.Arguments = slices.Clone(function.Arguments)
	for i := range function.Arguments {
		argument := &function.Arguments[i]
		if s.NeedsReason && function.Name == wire.ForceRelease && argument.Name == "reason" {
			// Not `\S`, which means other characters in each dialect of patterns.
			argument.Required, argument.Schema.Pattern = true, `[^\s\v\x85\p{Z}]`
		}
		if !withSchemas {
			argument.Schema = schema.Schema{}
		}
	}
	if !withSchemas {
		function.Result = nil
	}
	return function
}

// Routed describes a function that runs in another service.
func Routed(name string) Function {
	function := read().Routed
	function.Name = name
	return function
}

// Versions describes the function as the describe function does. It has schemas if the function has them.
func (f Function) Versions(asked string) Versions {
	described := Versions{Asked: asked, Description: f.Summary, Versions: []Version{}, Recommended: f.Version, Function: f}
	if f.Version == "" {
		return described
	}
	version := Version{Version: f.Version, Stability: f.Stability, Description: f.Summary, Extensions: f.Extensions}
	if f.Result != nil {
		arguments := schema.Schema{Type: "object", Properties: map[string]schema.Schema{}}
		for _, argument := range f.Arguments {
			property := argument.Schema
			property.Description = argument.Description
			arguments.Properties[argument.Name] = property
			if argument.Required {
				arguments.Required = append(arguments.Required, argument.Name)
			}
		}
		version.Schema = &Schemas{Arguments: arguments, Returns: f.Result.Schema, Definitions: map[string]schema.Schema{}}
	}
	described.Versions = append(described.Versions, version)
	return described
}

// InCamelCase returns the function in the dialect of the discovery extension.
func (f Function) InCamelCase() Function {
	f.SideEffects, f.SideEffectsCamel = nil, f.SideEffects
	return f
}

// InCamelCase returns the document in the dialect of the discovery extension.
func (d Document) InCamelCase() Document {
	d.Describe, d.Discovery = "", formVersion
	d.Functions = slices.Clone(d.Functions)
	for i := range d.Functions {
		d.Functions[i] = d.Functions[i].InCamelCase()
	}
	return d
}
