package limits

// Error refuses something for the moment. Nothing has happened yet; trying again later may
// succeed.
type Error struct {
	// IsCaller says that the caller has used up its own share. Otherwise the service as a
	// whole is at a limit.
	IsCaller bool
	// Reason tells the caller which limit it is.
	Reason string
}

// Error implements error.
func (e *Error) Error() string { return e.Reason }

// The refusals of a [Limiter].
var (
	ErrCallerRunning = &Error{IsCaller: true, Reason: "The caller has too many running calls"}
	ErrCallerWaiting = &Error{IsCaller: true, Reason: "The caller has too many calls that wait for locks"}
	ErrRunning       = &Error{Reason: "The lock service has too many running calls"}
	ErrWaiting       = &Error{Reason: "The lock service has too many calls that wait for locks"}
	ErrBodies        = &Error{Reason: "The lock service has too much to read at the moment"}
	// ErrDraining ends the wait of a call when the server stops.
	ErrDraining = &Error{Reason: "The lock service is temporarily unavailable"}
)
