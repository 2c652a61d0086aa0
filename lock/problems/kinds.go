package problems

import "net/http"

// typePrefix begins the types of all problems.
const typePrefix = "urn:lock-operator:problem:"

// Kind is what programs tell problems by. The kinds are those of this package.
type Kind struct {
	// Name ends the type of the document.
	Name string
	// Status is the HTTP status.
	Status int

	title       string
	isRetryable bool
}

// The kinds of problems. docs/rest.md lists them.
var (
	InvalidRequest       = &Kind{Name: "invalid-request", Status: http.StatusBadRequest, title: "The request is invalid"}
	TokenRequired        = &Kind{Name: "lock-token-required", Status: http.StatusBadRequest, title: "The lock token is missing"}
	Unauthenticated      = &Kind{Name: "unauthenticated", Status: http.StatusUnauthorized, title: "The caller is not authenticated"}
	Forbidden            = &Kind{Name: "forbidden", Status: http.StatusForbidden, title: "The caller lacks a right"}
	CrossOrigin          = &Kind{Name: "cross-origin", Status: http.StatusForbidden, title: "The request comes from a page of another origin"}
	WrongToken           = &Kind{Name: "wrong-lock-token", Status: http.StatusForbidden, title: "The lock token is not one of this lock's holder"}
	RefusedByCluster     = &Kind{Name: "refused-by-cluster", Status: http.StatusForbidden, title: "The cluster refuses the lock"}
	NoSuchPath           = &Kind{Name: "not-found", Status: http.StatusNotFound, title: "There is nothing under this path"}
	NamespaceNotServed   = &Kind{Name: "namespace-not-served", Status: http.StatusNotFound, title: "The namespace is not served here"}
	LockNotFound         = &Kind{Name: "lock-not-found", Status: http.StatusNotFound, title: "The lock is not held"}
	MethodNotAllowed     = &Kind{Name: "method-not-allowed", Status: http.StatusMethodNotAllowed, title: "The resource has no such method"}
	NotAcceptable        = &Kind{Name: "not-acceptable", Status: http.StatusNotAcceptable, title: "There is no answer of an acceptable type"}
	BodyTimeout          = &Kind{Name: "body-timeout", Status: http.StatusRequestTimeout, title: "The body did not arrive in time", isRetryable: true}
	LockEnded            = &Kind{Name: "lock-ended", Status: http.StatusGone, title: "The lock has ended"}
	PageExpired          = &Kind{Name: "page-expired", Status: http.StatusGone, title: "The list can no longer be continued"}
	VersionMismatch      = &Kind{Name: "version-mismatch", Status: http.StatusPreconditionFailed, title: "The lock does not meet the condition of the request"}
	BodyTooLarge         = &Kind{Name: "body-too-large", Status: http.StatusRequestEntityTooLarge, title: "The body is too large"}
	UnsupportedMediaType = &Kind{Name: "unsupported-media-type", Status: http.StatusUnsupportedMediaType, title: "The body has a type that is not read"}
	LockHeld             = &Kind{Name: "lock-held", Status: http.StatusLocked, title: "The lock is held", isRetryable: true}
	TooManyCalls         = &Kind{Name: "too-many-calls", Status: http.StatusTooManyRequests, title: "The caller has too many calls", isRetryable: true}
	InternalError        = &Kind{Name: "internal-error", Status: http.StatusInternalServerError, title: "Internal error", isRetryable: true}
	Unavailable          = &Kind{Name: "unavailable", Status: http.StatusServiceUnavailable, title: "The lock service is temporarily unavailable", isRetryable: true}
)
