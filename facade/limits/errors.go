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

// The refusals of a [Limiter].
var (
	ErrCallerRunning    = &Error{IsCaller: true, Limit: "running_per_caller", Reason: "The caller has too many running calls"}
	ErrNamespaceRunning = &Error{IsCaller: true, Limit: "running_per_namespace", Reason: "The service accounts of the caller's namespace have too many running calls"}
	ErrRunning          = &Error{Limit: "running", Reason: "The lock service has too many running calls"}
	ErrCallerWaiting    = &Error{IsCaller: true, Limit: "waiting_per_caller", Reason: "The caller has too many calls that wait for locks"}
	ErrNamespaceWaiting = &Error{IsCaller: true, Limit: "waiting_per_namespace", Reason: "The service accounts of the caller's namespace have too many calls that wait for locks"}
	ErrWaiting          = &Error{Limit: "waiting", Reason: "The lock service has too many calls that wait for locks"}
	ErrCallerBodies     = &Error{IsCaller: true, Limit: "body_bytes_per_caller", Reason: "The caller has too much to read at the moment"}
	ErrNamespaceBodies  = &Error{IsCaller: true, Limit: "body_bytes_per_namespace", Reason: "The service accounts of the caller's namespace have too much to read at the moment"}
	ErrBodies           = &Error{Limit: "body_bytes", Reason: "The lock service has too much to read at the moment"}
	ErrCallerLists      = &Error{IsCaller: true, Limit: "lists_per_caller", Reason: "The caller has too many lists under way"}
	ErrNamespaceLists   = &Error{IsCaller: true, Limit: "lists_per_namespace", Reason: "The service accounts of the caller's namespace have too many lists under way"}
	ErrLists            = &Error{Limit: "lists", Reason: "The lock service has too many lists under way"}
	ErrCallerStreams    = &Error{IsCaller: true, Limit: "streams_per_caller", Reason: "The caller has too many streams of namespaces"}
	ErrNamespaceStreams = &Error{IsCaller: true, Limit: "streams_per_namespace", Reason: "The service accounts of the caller's namespace have too many streams of namespaces"}
	ErrStreams          = &Error{Limit: "streams", Reason: "The lock service has too many streams of namespaces"}
	ErrCallerRate       = &Error{IsCaller: true, Limit: "rate_per_caller", Reason: "The caller asks too much of the API server"}
	ErrNamespaceRate    = &Error{IsCaller: true, Limit: "rate_per_namespace", Reason: "The service accounts of the caller's namespace ask too much of the API server"}
	ErrTurns            = &Error{IsCaller: true, Limit: "turns", Reason: "Too many calls of the caller, or of the service accounts of its namespace, wait for their turn at the API server"}
	// ErrDraining ends the wait of a call when the server stops.
	ErrDraining = &Error{Limit: "stopping", Reason: "The lock service is temporarily unavailable"}
)
