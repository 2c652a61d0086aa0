// Package wire is what the façade and its clients say to each other beyond the Forrst protocol, as JSON: the extended lock
// functions, their arguments and results, and the fencing token. It is described in docs/forrst.md, section 12.10.
//
// Scopes are "function" and "global" as in the atomic lock extension; times are RFC 3339 in UTC.
package wire

import "forrst.dev/lock-operator/api/v1alpha1"

// The extended lock functions, each in version "1.0.0".
const (
	Acquire     = extendedFunction + "acquire"     // takes [AcquireArguments] and returns [Acquired]
	AcquireAll  = extendedFunction + "acquire-all" // takes [AcquireArguments] with keys for the key and returns [AcquiredAll]
	Renew       = extendedFunction + "renew"       // takes [KeyArguments] with the owner and returns [Renewed]
	List        = extendedFunction + "list"        // takes [ListArguments] and returns [Locks]
	ListWaiters = extendedFunction + "waiters"     // takes [WaitersArguments] and returns [Waiters]
	// Release takes [KeyArguments] with the owner and returns [Released]. It differs from the function of the protocol in its
	// errors, which tell apart what has expired.
	Release = extendedFunction + "release"
	// ForceRelease takes [KeyArguments] with a reason, which is optional where callers are not authenticated, and returns
	// [Released]. It is the function of the protocol.
	ForceRelease = "urn:cline:forrst:ext:atomic-lock:fn:force-release"
	// Status takes [KeyArguments] and returns [State], which tells more than the function of the protocol.
	Status = extendedFunction + "status"

	extendedFunction = "urn:k8s:forrst:ext:atomic-lock:fn:"
)

// FunctionVersion is the version of all functions.
const FunctionVersion = "1.0.0"

// ServiceName is the name by which the service speaks of itself: in what it tells of its capabilities, and as the caller of
// other services.
const ServiceName = "lock-operator"

// The response entries beside those of the protocol.
const (
	// FencingURN names the one that carries a [Fencing].
	FencingURN = "urn:k8s:forrst:ext:fencing"
	// LostURN names the one that carries a [Lost].
	LostURN = "urn:k8s:forrst:ext:lock-lost"
)

// Path is where the protocol is spoken.
const Path = "/forrst"

// The headers that tell the service of a function what the façade knows of the call. Texts are percent-encoded but for
// visible ASCII.
const (
	// NamespaceHeader names the namespace whose locks a call is about, to the façade, too. Without it, that is the namespace
	// of the caller's service account. The answer of the façade to a call that names none has the one that it was about.
	NamespaceHeader = "Forrst-Namespace"
	// CallerHeader is the authenticated identity of the caller.
	CallerHeader = "Forrst-Caller"
	// FullKeyHeader is the full key of the lock around the function, if there is one.
	FullKeyHeader = "Forrst-Full-Key"
	// FencingHeader is the number of its grant, which a guarded resource can check. Numbers compare within one namespace and
	// full key only.
	FencingHeader = "Forrst-Fencing-Token"
)

// The values of scope.
const (
	FunctionScope = "function"
	GlobalScope   = "global"
)

// ScopeOf returns the value of a scope.
func ScopeOf(scope v1alpha1.Scope) string {
	if scope == v1alpha1.ScopeFunction {
		return FunctionScope
	}
	return GlobalScope
}
