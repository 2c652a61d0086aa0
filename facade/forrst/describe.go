package forrst

import (
	"context"
	"slices"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// discovery is the extension that offers functions about functions.
const discovery = "discovery"

// unenveloped is the result of a function whose answer is the result alone.
type unenveloped struct{ result any }

// describe answers in the shapes of the two pages that describe it with an envelope
// (section 9.4): one function, or a document.
func (h *Handler) describe() Function {
	return Function{
		Names:       []string{"urn:cline:forrst:fn:describe", "forrst.describe"},
		Version:     systemVersion,
		Description: describeDescribe(),
		prepare: func(c *call) (Invocation, envelope.Errors) {
			return c.prepareDescribe(func(asked describeArguments) any {
				if asked.function == "" {
					return c.describeAll(asked.includeSchema)
				}
				if asked.isRouted {
					return describeRoutedVersions(asked.function)
				}
				return describeVersions(asked)
			})
		},
	}
}

// discoveryDescribe answers as the page of the discovery extension wants it: without
// an envelope, and so without a place for what a lock extension has to say.
func (h *Handler) discoveryDescribe() Function {
	return Function{
		Names:       []string{extensionFunction(discovery, "describe")},
		Version:     systemVersion,
		Excluded:    []string{envelope.AtomicLock},
		Description: describeDescribe(),
		prepare: func(c *call) (Invocation, envelope.Errors) {
			return c.prepareDescribe(func(asked describeArguments) any {
				if asked.function == "" {
					return unenveloped{c.discoverAll(asked.includeSchema)}
				}
				if asked.isRouted {
					return unenveloped{inCamelCase(describeRouted(asked.function))}
				}
				return unenveloped{inCamelCase(describeFunction(recommended(asked.versions), asked.includeSchema))}
			})
		},
	}
}

type describeArguments struct {
	// function is the name as sent. Empty means all functions.
	function string
	// versions are those of the function that are asked about, the lowest first.
	versions []registered
	// recommended is the version to use, whichever are asked about.
	recommended   string
	includeSchema bool
	// isRouted says that the function runs elsewhere, and nothing is known of its versions.
	isRouted bool
}

func (c *call) prepareDescribe(describe func(describeArguments) any) (Invocation, envelope.Errors) {
	var problems envelope.Errors
	fields := c.readArguments(&problems)
	asked := describeArguments{includeSchema: fields.Bool("include_schema", true)}
	asked.function, _ = fields.Text("function")
	version, hasVersion := fields.Text("version")
	if _, ok := envelope.FunctionVersion(version); hasVersion && !ok {
		fields.Fail("version", "must be a semantic version such as 1.0.0")
	}
	if len(problems) > 0 {
		return nil, problems
	}
	if _, asked.isRouted = c.route(asked.function); asked.function != "" && !asked.isRouted {
		versions, err := c.functions.find(asked.function, version)
		if err != nil {
			return nil, envelope.Errors{*err}
		}
		asked.versions = versions
		asked.recommended = recommended(c.functions.versions[asked.function]).version.String()
	}
	return func(context.Context) (any, error) { return describe(asked), nil }, nil
}

// find returns the versions of a function, or the one that is named.
func (r *registry) find(function, version string) ([]registered, *envelope.Error) {
	wanted := &envelope.Call{Function: function, Version: version}
	versions := r.versions[function]
	if versions == nil {
		problem := functionNotFound(wanted).At(argumentsPointer + "/function")
		return nil, &problem
	}
	if version == "" {
		return versions, nil
	}
	exact, _ := envelope.FunctionVersion(version)
	for i := range versions {
		if versions[i].version.String() == exact {
			return versions[i : i+1], nil
		}
	}
	problem := versionNotFound(wanted, versions).At(argumentsPointer + "/version")
	return nil, &problem
}

// recommended is the version that calls get which name none or, if there is no stable
// one, the highest.
func recommended(versions []registered) registered {
	for _, candidate := range slices.Backward(versions) {
		if candidate.version.IsStable() {
			return candidate
		}
	}
	return versions[len(versions)-1]
}

// discoverable returns the names of all functions that are not hidden.
func (r *registry) discoverable() []string {
	var names []string
	for _, name := range r.names {
		if !recommended(r.versions[name]).Description.Hidden {
			names = append(names, name)
		}
	}
	return names
}

// listed returns every version of every function that is not hidden, once each.
func (r *registry) listed() []registered {
	var functions []registered
	for _, name := range r.names {
		for _, each := range r.versions[name] {
			if each.Names[0] == name && !each.Description.Hidden {
				functions = append(functions, each)
			}
		}
	}
	return functions
}
