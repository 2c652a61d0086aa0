package envelope

import "net/http"

// Code says what kind of error an [Error] is. Standard codes are listed below; services
// may add their own in SCREAMING_SNAKE_CASE (docs/forrst.md, section 5.3).
type Code string

// The error codes that a lock service uses or meets (docs/forrst.md, section 5.3).
const (
	// ParseError means that the body is not JSON.
	ParseError Code = "PARSE_ERROR"
	// InvalidRequest means that the envelope breaks the protocol.
	InvalidRequest Code = "INVALID_REQUEST"
	// InvalidProtocolVersion means that the protocol version is not spoken.
	InvalidProtocolVersion Code = "INVALID_PROTOCOL_VERSION"
	// FunctionNotFound means that there is no such function.
	FunctionNotFound Code = "FUNCTION_NOT_FOUND"
	// VersionNotFound means that the function exists, but not in this version.
	VersionNotFound Code = "VERSION_NOT_FOUND"
	// FunctionDisabled means that the function is switched off.
	FunctionDisabled Code = "FUNCTION_DISABLED"
	// InvalidArguments means that arguments or extension options are wrong.
	InvalidArguments Code = "INVALID_ARGUMENTS"
	// ExtensionNotSupported means that a needed extension is not offered.
	ExtensionNotSupported Code = "EXTENSION_NOT_SUPPORTED"
	// ExtensionNotApplicable means that an extension is not offered for the function.
	ExtensionNotApplicable Code = "EXTENSION_NOT_APPLICABLE"
	// Unauthorized means that the caller is not authenticated.
	Unauthorized Code = "UNAUTHORIZED"
	// Forbidden means that the caller is authenticated and not allowed.
	Forbidden Code = "FORBIDDEN"
	// NotFound means that an object of the domain does not exist.
	NotFound Code = "NOT_FOUND"
	// Conflict means that the state does not permit the call.
	Conflict Code = "CONFLICT"
	// Gone means that an object existed and was deleted.
	Gone Code = "GONE"
	// DeadlineExceeded means that the deadline of the call passed.
	DeadlineExceeded Code = "DEADLINE_EXCEEDED"
	// RateLimited means that the caller has made too many calls.
	RateLimited Code = "RATE_LIMITED"
	// InternalError means that the server failed unexpectedly.
	InternalError Code = "INTERNAL_ERROR"
	// Unavailable means that the server cannot do it for the moment.
	Unavailable Code = "UNAVAILABLE"
	// DependencyError means that something behind the server failed.
	DependencyError Code = "DEPENDENCY_ERROR"
	// Cancelled means that the client cancelled the call.
	Cancelled Code = "CANCELLED"
	// CancellationTokenUnknown means that no running call has the token.
	CancellationTokenUnknown Code = "CANCELLATION_TOKEN_UNKNOWN"
	// CancellationTooLate means that the function of the call was over already.
	CancellationTooLate Code = "CANCELLATION_TOO_LATE"
	// IdempotencyProcessing means that a call with the same key is still running.
	IdempotencyProcessing Code = "IDEMPOTENCY_PROCESSING"
	// ServerMaintenance means that the whole server is being maintained.
	ServerMaintenance Code = "SERVER_MAINTENANCE"
	// FunctionMaintenance means that the function is being maintained.
	FunctionMaintenance Code = "FUNCTION_MAINTENANCE"
	// LockAcquisitionFailed means that the lock is held, and waiting was not asked for.
	LockAcquisitionFailed Code = "LOCK_ACQUISITION_FAILED"
	// LockTimeout means that the lock was held for as long as the caller would wait.
	LockTimeout Code = "LOCK_TIMEOUT"
	// LockNotFound means that there is no lock to release.
	LockNotFound Code = "LOCK_NOT_FOUND"
	// LockOwnershipMismatch means that the lock is held under another owner token.
	LockOwnershipMismatch Code = "LOCK_OWNERSHIP_MISMATCH"
	// LockRefused means that a quota or a policy of the cluster refuses it, or that the namespace is
	// ending. It is a code of this service.
	LockRefused Code = "LOCK_REFUSED"
)

// statusClientClosedRequest is what servers commonly use for a call whose client
// has gone; net/http has no name for it.
const statusClientClosedRequest = 499

// statuses holds the codes whose status is not 400 (docs/forrst.md, section 5.3).
var statuses = map[Code]int{
	FunctionNotFound: http.StatusNotFound,
	VersionNotFound:  http.StatusNotFound,
	FunctionDisabled: http.StatusServiceUnavailable,
	Unauthorized:     http.StatusUnauthorized,
	Forbidden:        http.StatusForbidden,
	NotFound:         http.StatusNotFound,
	Conflict:         http.StatusConflict,
	Gone:             http.StatusGone,
	// Not 408, which HTTP stacks may silently repeat: unsafe for a guarded call.
	DeadlineExceeded:      http.StatusGatewayTimeout,
	RateLimited:           http.StatusTooManyRequests,
	InternalError:         http.StatusInternalServerError,
	Unavailable:           http.StatusServiceUnavailable,
	DependencyError:       http.StatusBadGateway,
	Cancelled:             statusClientClosedRequest,
	LockAcquisitionFailed: http.StatusLocked,
	LockTimeout:           http.StatusLocked,
	LockNotFound:          http.StatusNotFound,
	LockOwnershipMismatch: http.StatusForbidden,
	LockRefused:           http.StatusForbidden,

	CancellationTokenUnknown: http.StatusNotFound,
	CancellationTooLate:      http.StatusConflict,
	IdempotencyProcessing:    http.StatusConflict,
	ServerMaintenance:        http.StatusServiceUnavailable,
	FunctionMaintenance:      http.StatusServiceUnavailable,

	// Those that this service only passes on have no name here.
	"SCHEMA_VALIDATION_FAILED":      http.StatusUnprocessableEntity,
	"LOCK_ALREADY_RELEASED":         http.StatusConflict,
	"IDEMPOTENCY_CONFLICT":          http.StatusConflict,
	"ASYNC_OPERATION_NOT_FOUND":     http.StatusNotFound,
	"ASYNC_OPERATION_FAILED":        http.StatusInternalServerError,
	"REPLAY_NOT_FOUND":              http.StatusNotFound,
	"REPLAY_EXPIRED":                http.StatusGone,
	"REPLAY_ALREADY_COMPLETE":       http.StatusConflict,
	"REPLAY_CANCELLED":              http.StatusGone,
	"SIMULATION_SCENARIO_NOT_FOUND": http.StatusNotFound,
}

// Status returns the HTTP status of a response whose only error has this code. It
// is 400 for codes that the protocol does not define.
func (c Code) Status() int {
	if status, ok := statuses[c]; ok {
		return status
	}
	return http.StatusBadRequest
}
