package wire

// The extended lock functions, each in version "1.0.0".
const (
	// Acquire takes [AcquireArguments] and returns [Acquired].
	Acquire = extendedFunction + "acquire"
	// AcquireAll takes [AcquireArguments] with keys in place of the key, and returns [AcquiredAll].
	AcquireAll = extendedFunction + "acquire-all"
	// Renew takes [RenewArguments] and returns [Renewed].
	Renew = extendedFunction + "renew"
	// Release takes [KeyArguments] with the owner and returns [Released]. It differs from
	// the function of the protocol in its errors, which tell apart what has expired.
	Release = extendedFunction + "release"
	// ForceRelease takes [KeyArguments] with a reason, which is optional where callers are
	// not authenticated, and returns [Released].
	// It is the function of the protocol.
	ForceRelease = "urn:cline:forrst:ext:atomic-lock:fn:force-release"
	// Status takes [KeyArguments] and returns [State], which tells more than the
	// function of the protocol.
	Status = extendedFunction + "status"
	// List takes [ListArguments] and returns [Locks].
	List = extendedFunction + "list"
	// ListWaiters takes [WaitersArguments] and returns [Waiters].
	ListWaiters = extendedFunction + "waiters"

	extendedFunction = "urn:k8s:forrst:ext:atomic-lock:fn:"
)

// FunctionVersion is the version of all functions.
const FunctionVersion = "1.0.0"

// ServiceName is the name by which the service speaks of itself: in what it tells of its
// capabilities, and as the caller of other services.
const ServiceName = "lock-operator"

// FencingURN names the response entry that carries a [Fencing].
const FencingURN = "urn:k8s:forrst:ext:fencing"

// Path is where the protocol is spoken.
const Path = "/forrst"

// NamespaceHeader names the namespace whose locks a call is about, to the façade and from it to the
// services of routed functions. Without it, that is the namespace of the caller's service account. The
// answer of the façade to a call that names none has the one that the call was about.
const NamespaceHeader = "Forrst-Namespace"

// The values of scope.
const (
	FunctionScope = "function"
	GlobalScope   = "global"
)
