package forrst

import (
	"context"
	"fmt"
	"slices"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// Function is one version of a function that callers can name.
type Function struct {
	// Names are all spellings of the function, the preferred one first. Required.
	Names []string
	// Version is a semantic version. Required.
	Version string
	// Excluded names the extensions that must not be used with the function, such as
	// [forrst.AtomicLock].
	Excluded []string
	// Routed says that the function runs in another service, which handles the extensions
	// that the façade does not: they are not refused, whatever they would change, and are
	// for Prepare to pass on (see [HandlesExtension]).
	Routed bool
	// Description is what describe tells about the function.
	Description Description
	// Prepare checks the arguments of a call and returns what remains to be done.
	// Every problem that it finds is reported, and then nothing is done. It must have
	// no effect: it runs before any lock is taken. Required.
	Prepare func(request *envelope.Request) (Invocation, envelope.Errors)

	// prepare is Prepare of a function that needs to know more of its call.
	prepare func(c *call) (Invocation, envelope.Errors)
	// verb is what callers must be allowed to do with locks, or empty if nothing.
	verb string
	// class is what metrics count the function as. Empty means routedClass.
	class string
	// forgetsRequest says that the function does not look at the request any more once
	// it is prepared.
	forgetsRequest bool
}

// Invocation runs a function whose arguments are in order. Its result is encoded as
// JSON. An error that is a [forrst.Errors] or [*forrst.Error] is answered as it is,
// lock.ErrUnavailable as unavailability, the end of ctx as such, and any other as an
// internal error that only the log tells about. ctx ends when the caller goes away.
type Invocation func(ctx context.Context) (any, error)

// registry finds functions by name and version.
type registry struct {
	// names are all spellings, in the order in which they were added.
	names []string
	// versions are those of a function by any of its names, the lowest first.
	versions map[string][]registered
}

type registered struct {
	*Function

	version envelope.Version
}

func (r *registry) add(function Function) error {
	version, ok := envelope.ParseVersion(function.Version)
	switch {
	case len(function.Names) == 0 || function.Prepare == nil && function.prepare == nil:
		return fmt.Errorf("facade: function %q must have a name and Prepare", function.Names)
	case !ok:
		return fmt.Errorf("facade: function %q: %q is not a semantic version", function.Names[0], function.Version)
	}
	if r.versions == nil {
		r.versions = map[string][]registered{}
	}
	for _, name := range function.Names {
		versions := r.versions[name]
		if slices.ContainsFunc(versions, func(other registered) bool { return other.version == version }) {
			return fmt.Errorf("facade: function %q has two implementations of version %s", name, version)
		}
		if versions == nil {
			r.names = append(r.names, name)
		}
		versions = append(versions, registered{&function, version})
		slices.SortStableFunc(versions, func(a, b registered) int { return a.version.Compare(b.version) })
		r.versions[name] = versions
	}
	return nil
}

// resolve finds what a call names (section 6.2): exactly the given version, or the
// highest stable one. An unknown function is reported before an unknown version.
func (r *registry) resolve(call *envelope.Call) (*Function, error) {
	versions := r.versions[call.Function]
	if versions == nil {
		problem := functionNotFound(call).At("/call/function")
		return nil, &problem
	}
	wanted, _ := envelope.FunctionVersion(call.Version)
	for _, candidate := range slices.Backward(versions) {
		if candidate.version.String() == wanted || call.Version == "" && candidate.version.IsStable() {
			return candidate.Function, nil
		}
	}
	problem := versionNotFound(call, versions).At("/call/version")
	return nil, &problem
}

func functionNotFound(call *envelope.Call) envelope.Error {
	return envelope.Error{Code: envelope.FunctionNotFound, Message: "Function not found"}.
		With(map[string]string{"function": call.Function})
}

func versionNotFound(call *envelope.Call, versions []registered) envelope.Error {
	details := struct {
		Function  string   `json:"function"`
		Requested *string  `json:"requested_version"`
		Available []string `json:"available_versions"`
	}{Function: call.Function}
	message := "No stable version found for function " + call.Function
	if call.Version != "" {
		details.Requested = &call.Version
		message = fmt.Sprintf("Version %s not found for function %s", call.Version, call.Function)
	}
	for _, candidate := range versions {
		details.Available = append(details.Available, candidate.version.String())
	}
	return envelope.Error{Code: envelope.VersionNotFound, Message: message}.With(details)
}
