package limits

import (
	"cmp"
	"time"
)

// Error refuses something for the moment. Nothing has happened yet; trying again later may
// succeed.
type Error struct {
	// IsCaller says that the caller has used up its own share, or the callers of its namespace
	// theirs. Otherwise the service as a whole is at a limit.
	IsCaller bool
	// Reason tells the caller which limit it is.
	Reason string
	// Limit names the limit in metrics. There is a bounded number of them.
	Limit string
	// RetryAfter is when to try again. Zero means [DefaultRetryAfter].
	RetryAfter time.Duration
}

// DefaultRetryAfter is when to try again what may succeed as soon as another call ends.
const DefaultRetryAfter = time.Second

// Error implements error.
func (e *Error) Error() string { return e.Reason }

// Wait is when to try again, in whole seconds, at least one.
func (e *Error) Wait() time.Duration {
	return (cmp.Or(max(0, e.RetryAfter), DefaultRetryAfter) + time.Second - 1).Truncate(time.Second)
}

// Refusals, besides those of other limits of which callers have shares.
var (
	inFlight          = refusalsOf("in_flight", "calls in flight")
	ErrCallerInFlight = inFlight.caller
	ErrInFlight       = inFlight.whole

	ErrCallerRate    = &Error{IsCaller: true, Limit: "rate_per_caller", Reason: "The caller asks too much of the API server"}
	ErrNamespaceRate = &Error{IsCaller: true, Limit: "rate_per_namespace", Reason: "The service accounts of the caller's namespace ask too much of the API server"}
	ErrTurns         = &Error{IsCaller: true, Limit: "turns", Reason: "Too many calls of the caller, or of the service accounts of its namespace, wait for their turn at the API server"}
	// ErrDraining ends the wait of a call when the server stops.
	ErrDraining = &Error{Limit: "stopping", Reason: "The lock service is temporarily unavailable"}
)

// refusals tell that the share of the caller, that of its namespace, or the whole of a pool is used up.
type refusals struct{ caller, namespace, whole *Error }

func refusalsOf(limit, what string) refusals {
	return refusals{
		caller:    &Error{IsCaller: true, Limit: limit + "_per_caller", Reason: "The caller has too many " + what},
		namespace: &Error{IsCaller: true, Limit: limit + "_per_namespace", Reason: "The service accounts of the caller's namespace have too many " + what},
		whole:     &Error{Limit: limit, Reason: "The lock service has too many " + what},
	}
}
