package forrst

import (
	"context"
	"fmt"
	"strings"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/limits"
)

// Classes that metrics count functions by: callers choose the names of functions, but not how many series there are.
const (
	lockClass     = "lock"
	extendedClass = "vendor"
	systemClass   = "system"
	routedClass   = "routed"
)

// function is a function that callers can name. Those that are served here have the version [wire.FunctionVersion].
type function struct {
	// names are all spellings of the function, the preferred one first. It is described by that (package describe).
	names []string
	// class is what metrics count the function as.
	class string
	// excluded names the extensions that must not be used with the function.
	excluded []string
	// isRouted says that the function runs in another service, which handles the extensions that the façade does not: they are
	// not refused, even if they change what the call does.
	isRouted bool
	// keepsBody says that the room of the body is kept until the answer is sent: the function needs the body, or takes room
	// for its answer.
	keepsBody bool
	// needsLock says that each call must have a lock around it, also one that asks what the function would do: the service may
	// not know that extension.
	needsLock bool
	// prepare checks the arguments of a call and returns what remains to be done. It adds every problem that it finds to the
	// faults of the call; if there are any, nothing is done. It has no effect, since it runs before any lock is taken.
	prepare func(c *call) Invocation
	// verb is what callers must be allowed to do with locks, or empty if nothing.
	verb string
	// verbOfAll is the verb for a call that names no lock, where the lock may be left out. Empty elsewhere.
	verbOfAll string
	// lock returns the one lock that a call is about, see [call.requestedLock]. Nil if the function is about none or several.
	lock func(c *call) v1alpha1.FullKey
	// cost is what the function costs the API server, but for the lock that a call acquires.
	cost limits.Cost
}

// operation is what the audit calls the function: the last part of its name, as served here. Functions of other services are
// calls.
func (f *function) operation() string {
	if f.isRouted {
		return "call"
	}
	return f.names[0][strings.LastIndexByte(f.names[0], ':')+1:]
}

// Invocation runs a function whose arguments are in order. Its result is encoded as JSON. An error that is an
// [envelope.Errors] or [*envelope.Error] is answered as it is, lock.ErrUnavailable as unavailability, the end of ctx as such,
// and any other as an internal error that only the log tells about. ctx ends when the caller goes away.
type Invocation func(ctx context.Context) (any, error)

// servedFunctions are the functions of docs/forrst.md, sections 9, 10.4, 12.8 and 12.10, in the order in which capabilities
// lists them. Those about locks and in the discovery dialect refuse the lock extension: a lock around the release of a lock
// is of no use.
func servedFunctions() []*function {
	noLock := []string{envelope.AtomicLock}
	return []*function{
		{names: lockNames("release", "release"), class: lockClass, excluded: noLock, verb: access.VerbCreate, cost: limits.Upkeep, lock: (*call).namedLock, prepare: (*call).prepareRelease},
		{names: lockNames("force-release", "forceRelease"), class: lockClass, excluded: noLock, verb: access.VerbForceRelease, cost: limits.Work, lock: (*call).namedLock, prepare: (*call).prepareForceRelease},
		{names: lockNames("status", "status"), class: lockClass, excluded: noLock, verb: access.VerbGet, cost: limits.Work, lock: (*call).namedLock, prepare: (*call).prepareStatus},

		{names: []string{wire.Acquire}, class: extendedClass, excluded: noLock, verb: access.VerbCreate, lock: (*call).acquiredLock, prepare: (*call).prepareAcquire},
		{names: []string{wire.AcquireAll}, class: extendedClass, excluded: noLock, verb: access.VerbCreate, lock: (*call).firstAcquiredLock, prepare: (*call).prepareAcquireAll},
		{names: []string{wire.Renew}, class: extendedClass, excluded: noLock, verb: access.VerbCreate, cost: limits.Upkeep, lock: (*call).namedLock, prepare: (*call).prepareRenew},
		{names: []string{wire.Release}, class: extendedClass, excluded: noLock, verb: access.VerbCreate, cost: limits.Upkeep, lock: (*call).namedLock, prepare: (*call).prepareExtendedRelease},
		{names: []string{wire.Status}, class: extendedClass, excluded: noLock, verb: access.VerbGet, cost: limits.Work, lock: (*call).namedLock, prepare: (*call).prepareExtendedStatus},
		{names: []string{wire.List}, class: extendedClass, excluded: noLock, verb: access.VerbList, cost: limits.Work, keepsBody: true, prepare: (*call).prepareList},
		{names: []string{wire.ListWaiters}, class: extendedClass, excluded: noLock, verb: access.VerbGet, verbOfAll: access.VerbList, cost: limits.Work, lock: (*call).namedLock, keepsBody: true, prepare: (*call).prepareWaiters},

		{names: systemNames("diagnostics", "ping"), class: systemClass, prepare: (*call).preparePing},
		{names: systemNames("diagnostics", "health"), class: systemClass, prepare: (*call).prepareHealth},
		{names: systemNames("discovery", "capabilities"), class: systemClass, prepare: (*call).prepareCapabilities},
		{names: []string{"urn:cline:forrst:fn:describe", "forrst.describe"}, class: systemClass, prepare: (*call).prepareDescribe},
		{names: []string{"urn:cline:forrst:ext:discovery:fn:describe"}, class: systemClass, excluded: noLock, prepare: (*call).prepareDiscoveryDescribe},
		{names: []string{"urn:cline:forrst:ext:cancellation:fn:cancel"}, class: systemClass, excluded: noLock, prepare: (*call).prepareCancel},
	}
}

// lockNames returns the spellings of a function of docs/forrst.md, section 12.8.
func lockNames(name, oldest string) []string {
	return []string{"urn:cline:forrst:ext:atomic-lock:fn:" + name, "urn:cline:forrst:fn:atomic-lock:" + name, "forrst.locks." + oldest}
}

// systemNames returns the spellings of a function of docs/forrst.md, section 9.
func systemNames(extension, name string) []string {
	return []string{"urn:cline:forrst:fn:" + name, "urn:cline:forrst:ext:" + extension + ":fn:" + name, "forrst." + name}
}

// registry finds functions by any of their names.
type registry struct {
	byName map[string]*function
	names  []string // all spellings, in the order in which they were added
}

func (r *registry) add(added *function) {
	for _, name := range added.names {
		r.byName[name] = added
		r.names = append(r.names, name)
	}
}

// find returns the function in the version that is asked for, or in its only one if version is empty. Pointer is where both
// are in the request. An unknown function is reported before an unknown version.
func (r *registry) find(name, version, pointer string) (*function, *envelope.Error) {
	found := r.byName[name]
	if found == nil {
		return nil, new(envelope.Error{Code: envelope.FunctionNotFound, Message: "Function not found"}.
			At(pointer + "/function").With(map[string]string{"function": name}))
	}
	if full, _ := envelope.FunctionVersion(version); version != "" && full != wire.FunctionVersion {
		message := fmt.Sprintf("Version %s not found for function %s", version, name)
		return nil, new(envelope.Error{Code: envelope.VersionNotFound, Message: message}.At(pointer + "/version").With(struct {
			Function  string   `json:"function"`
			Requested string   `json:"requested_version"`
			Available []string `json:"available_versions"`
		}{name, version, []string{wire.FunctionVersion}}))
	}
	return found, nil
}

// argumentsPointer is where problems with arguments are.
const argumentsPointer = "/call/arguments"

// readArguments prepares to read the arguments of the call.
func (c *call) readArguments(faults *envelope.Errors) envelope.Fields {
	fields, _ := envelope.ReadObject(c.request.Call.Arguments, argumentsPointer, faults)
	return fields
}
