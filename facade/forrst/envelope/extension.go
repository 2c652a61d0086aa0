package envelope

import "strings"

// Names of extensions, as [ExtensionName] returns them.
const (
	Async        = "async"
	AtomicLock   = "atomic-lock"
	Cancellation = "cancellation"
	Deadline     = "deadline"
	DryRun       = "dry-run"
	Idempotency  = "idempotency"
	Replay       = "replay"
	Retry        = "retry"
	Simulation   = "simulation"
	Tracing      = "tracing"
)

const (
	// The two dialects in which the standard extensions are named (docs/forrst.md, section 8.2).
	shortDialect  = "urn:forrst:ext:"
	vendorDialect = "urn:cline:forrst:ext:"
	// shortAtomicLock is how the page of the atomic lock extension names it.
	shortAtomicLock = shortDialect + "atomicLock"
)

// standardExtensions are the extensions that the protocol defines (docs/forrst.md, sections 8 and 10), except for the
// withdrawn batch.
var standardExtensions = map[string]bool{
	Async: true, AtomicLock: true, "caching": true, Cancellation: true, Deadline: true,
	"deprecation": true, DryRun: true, Idempotency: true, "locale": true, "maintenance": true,
	"priority": true, "query": true, "quota": true, "rate-limit": true, "redact": true,
	Replay: true, Retry: true, Simulation: true, "stream": true, Tracing: true, "webhook": true,
}

// ExtensionName returns the name of the standard extension that urn denotes in either dialect, or "" if it denotes none.
// URNs are compared exactly.
func ExtensionName(urn string) string {
	if urn == shortAtomicLock {
		return AtomicLock
	}
	name, ok := strings.CutPrefix(urn, vendorDialect)
	if !ok {
		name, ok = strings.CutPrefix(urn, shortDialect)
	}
	if !ok || !standardExtensions[name] {
		return ""
	}
	return name
}

// ExtensionURNs returns every URN of the named standard extension, the one to prefer first.
func ExtensionURNs(name string) []string {
	urns := []string{vendorDialect + name, shortDialect + name}
	if name == AtomicLock {
		urns = append(urns, shortAtomicLock)
	}
	return urns
}
