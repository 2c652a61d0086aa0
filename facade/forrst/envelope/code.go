package envelope

import "net/http"

// Code says what kind of error an [Error] is. Services may add their own in SCREAMING_SNAKE_CASE
// (docs/forrst.md, section 5.3).
type Code string

// The error codes that a lock service uses or meets (docs/forrst.md, section 5.3), each with what it means.
const (
	ParseError               Code = "PARSE_ERROR"                // the body is not JSON
	InvalidRequest           Code = "INVALID_REQUEST"            // the envelope breaks the protocol
	InvalidProtocolVersion   Code = "INVALID_PROTOCOL_VERSION"   // the protocol version is not spoken
	FunctionNotFound         Code = "FUNCTION_NOT_FOUND"         // there is no such function
	VersionNotFound          Code = "VERSION_NOT_FOUND"          // the function exists, but not in this version
	FunctionDisabled         Code = "FUNCTION_DISABLED"          // the function is switched off
	InvalidArguments         Code = "INVALID_ARGUMENTS"          // arguments or extension options are wrong
	ExtensionNotSupported    Code = "EXTENSION_NOT_SUPPORTED"    // a needed extension is not offered
	ExtensionNotApplicable   Code = "EXTENSION_NOT_APPLICABLE"   // an extension is not offered for the function
	Unauthorized             Code = "UNAUTHORIZED"               // the caller is not authenticated
	Forbidden                Code = "FORBIDDEN"                  // the caller is authenticated and not allowed
	NotFound                 Code = "NOT_FOUND"                  // an object of the domain does not exist
	Conflict                 Code = "CONFLICT"                   // the state does not permit the call
	Gone                     Code = "GONE"                       // an object existed and was deleted
	DeadlineExceeded         Code = "DEADLINE_EXCEEDED"          // the deadline of the call passed
	RateLimited              Code = "RATE_LIMITED"               // the caller has made too many calls
	InternalError            Code = "INTERNAL_ERROR"             // the server failed unexpectedly
	Unavailable              Code = "UNAVAILABLE"                // the server cannot do it for the moment
	DependencyError          Code = "DEPENDENCY_ERROR"           // something behind the server failed
	Cancelled                Code = "CANCELLED"                  // the client cancelled the call
	CancellationTokenUnknown Code = "CANCELLATION_TOKEN_UNKNOWN" // no running call has the token
	CancellationTooLate      Code = "CANCELLATION_TOO_LATE"      // the function of the call was over already
	IdempotencyProcessing    Code = "IDEMPOTENCY_PROCESSING"     // a call with the same key is still running
	ServerMaintenance        Code = "SERVER_MAINTENANCE"         // the whole server is being maintained
	FunctionMaintenance      Code = "FUNCTION_MAINTENANCE"       // the function is being maintained
	LockAcquisitionFailed    Code = "LOCK_ACQUISITION_FAILED"    // the lock is held, and waiting was not asked for
	LockTimeout              Code = "LOCK_TIMEOUT"               // the lock was held for as long as the caller would wait
	LockNotFound             Code = "LOCK_NOT_FOUND"             // there is no lock to release
	LockOwnershipMismatch    Code = "LOCK_OWNERSHIP_MISMATCH"    // the lock is held under another owner token
	LockRefused              Code = "LOCK_REFUSED"               // a code of this service: a quota, a policy or the end of the namespace forbids it
)

// statusClientClosedRequest is what servers commonly use for a call whose client has gone; net/http has no name for it.
const statusClientClosedRequest = 499

// Status returns the HTTP status of a response whose only error has this code (docs/forrst.md, section 5.3). It is 400
// for codes that the protocol does not define. Codes that this service only passes on have no names here.
func (c Code) Status() int {
	switch c {
	case Unauthorized:
		return http.StatusUnauthorized
	case Forbidden, LockOwnershipMismatch, LockRefused:
		return http.StatusForbidden
	case FunctionNotFound, VersionNotFound, NotFound, CancellationTokenUnknown, LockNotFound,
		"ASYNC_OPERATION_NOT_FOUND", "REPLAY_NOT_FOUND", "SIMULATION_SCENARIO_NOT_FOUND":
		return http.StatusNotFound
	case Conflict, CancellationTooLate, IdempotencyProcessing,
		"IDEMPOTENCY_CONFLICT", "LOCK_ALREADY_RELEASED", "REPLAY_ALREADY_COMPLETE":
		return http.StatusConflict
	case Gone, "REPLAY_EXPIRED", "REPLAY_CANCELLED":
		return http.StatusGone
	case "SCHEMA_VALIDATION_FAILED":
		return http.StatusUnprocessableEntity
	case LockAcquisitionFailed, LockTimeout:
		return http.StatusLocked
	case RateLimited:
		return http.StatusTooManyRequests
	case Cancelled:
		return statusClientClosedRequest
	case InternalError, "ASYNC_OPERATION_FAILED":
		return http.StatusInternalServerError
	case DependencyError:
		return http.StatusBadGateway
	case FunctionDisabled, Unavailable, ServerMaintenance, FunctionMaintenance:
		return http.StatusServiceUnavailable
	case DeadlineExceeded: // Not 408, which HTTP stacks may silently repeat: unsafe for a guarded call.
		return http.StatusGatewayTimeout
	default:
		return http.StatusBadRequest
	}
}
