package observe

import "time"

// Observer is told what an engine does. Its methods return at once, and are safe for concurrent use.
type Observer interface {
	// Granted is told of each grant that a caller got: how long the caller's request took, and whether
	// another caller had the lock, or waited for it, when the request came.
	Granted(took time.Duration, hasWaited bool)
	// Unanswered is told of a write whose answer was lost, once reading back has shown how it ended or was
	// given up.
	Unanswered(operation Operation, outcome Outcome)
}

// Operation is what an unanswered write was for.
type Operation string

// The operations.
const (
	Acquire Operation = "acquire"
	HandOff Operation = "hand_off"
	Renew   Operation = "renew"
	Release Operation = "release"
)

// AllOperations are all operations.
var AllOperations = []Operation{Acquire, HandOff, Renew, Release}

// Outcome is how an unanswered write ended.
type Outcome string

// The outcomes.
const (
	Happened    Outcome = "happened"
	NotHappened Outcome = "not_happened"
	// Unknown means that the API server did not answer in time.
	Unknown Outcome = "unknown"
	// Late means that an acquire whose outcome was one of the two before has happened after all.
	Late Outcome = "late"
)

// AllOutcomes are all outcomes.
var AllOutcomes = []Outcome{Happened, NotHappened, Unknown, Late}

// Nothing is the Observer that ignores what it is told.
type Nothing struct{}

// Granted implements [Observer].
func (Nothing) Granted(time.Duration, bool) {}

// Unanswered implements [Observer].
func (Nothing) Unanswered(Operation, Outcome) {}

// OrNothing returns the observer, or [Nothing] instead of nil.
func OrNothing(observer Observer) Observer {
	if observer == nil {
		return Nothing{}
	}
	return observer
}

// Waits is what an engine knows of the callers that wait.
type Waits struct {
	// Namespaces are those in which callers wait.
	Namespaces map[string]NamespaceWaits
	// FreeFor is for how long a lock has been free while callers wait for it: the largest such time.
	FreeFor time.Duration
	// LookedFor is how many grants the engine looks for, not knowing whether they happened.
	LookedFor int
	// Lines is how much of the limits of waiting callers is used.
	Lines LineUsage
}

// LineUsage is how much of the limits of waiting callers is used where it is most: by one lock, one namespace and
// one holder. 1 is all of it, and a limit that is not set has 0.
type LineUsage struct{ PerLock, PerNamespace, PerHolder float64 }

// NamespaceWaits are the waits for locks of one namespace.
type NamespaceWaits struct {
	// Callers is how many wait.
	Callers int
	// Longest is for how long the one that waits longest has waited.
	Longest time.Duration
}
