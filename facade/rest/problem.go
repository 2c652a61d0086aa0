package rest

import (
	"net/http"
	"time"
)

// Problem is an error as callers are told it (RFC 9457).
type Problem struct {
	// Type is stable; programs go by it.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail is for people, and may change.
	Detail string `json:"detail"`
	// Instance is the path of the request.
	Instance string `json:"instance,omitempty"`
	// Retryable says that the same request may succeed later.
	Retryable bool `json:"retryable"`

	// Holder is the identity that holds the lock. Empty if the problem is not about that, or if it
	// is not known.
	Holder     string `json:"holder,omitempty"`
	AcquiredAt string `json:"acquired_at,omitempty"`
	ExpiresAt  string `json:"expires_at,omitempty"`
	// Right is what the caller is not allowed to do, in the terms of a Role.
	Right *Right `json:"right,omitempty"`
	// Errors are all mistakes in the request.
	Errors []FieldError `json:"errors,omitempty"`
}

// problemError ends a call with a [Problem].
type problemError struct {
	Problem

	kind *problemKind
	// retryAfter is when to try again. Zero means that nothing is said about it.
	retryAfter time.Duration
}

// Error implements error.
func (p *problemError) Error() string { return p.Detail }

func (p *problemError) code() string { return p.kind.name }

// Right is a right in the terms of a Role.
type Right struct {
	Verb      string `json:"verb"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace"`
}

// FieldError is one mistake in a request.
type FieldError struct {
	// In is where the field is: body, query, path or header.
	In string `json:"in"`
	// Field is its name. A member of a member is joined by a dot.
	Field  string `json:"field"`
	Detail string `json:"detail"`
	// Value is as sent. Nil if there is none, or if it may be a secret.
	Value any `json:"value,omitempty"`
	// Minimum and Maximum bound a number, if they are what it breaks.
	Minimum *float64 `json:"minimum,omitempty"`
	Maximum *float64 `json:"maximum,omitempty"`
	// MaxLength bounds a text, in characters, if that is what it breaks.
	MaxLength int `json:"max_length,omitempty"`
}

// typePrefix begins the types of all problems.
const typePrefix = "urn:lock-operator:problem:"

// problemKind is what programs tell problems by.
type problemKind struct {
	name, title string
	status      int
	isRetryable bool
}

// The kinds of problems. docs/rest.md and openapi.yaml list them.
var (
	invalidRequest       = &problemKind{"invalid-request", "The request is invalid", http.StatusBadRequest, false}
	tokenRequired        = &problemKind{"lock-token-required", "The lock token is missing", http.StatusBadRequest, false}
	unauthenticated      = &problemKind{"unauthenticated", "The caller is not authenticated", http.StatusUnauthorized, false}
	forbidden            = &problemKind{"forbidden", "The caller lacks a right", http.StatusForbidden, false}
	crossOrigin          = &problemKind{"cross-origin", "The request comes from a page of another origin", http.StatusForbidden, false}
	wrongToken           = &problemKind{"wrong-lock-token", "The lock token is not one of this lock's holder", http.StatusForbidden, false}
	refusedByCluster     = &problemKind{"refused-by-cluster", "The cluster refuses the lock", http.StatusForbidden, false}
	noSuchPath           = &problemKind{"not-found", "There is nothing under this path", http.StatusNotFound, false}
	namespaceNotServed   = &problemKind{"namespace-not-served", "The namespace is not served here", http.StatusNotFound, false}
	lockNotFound         = &problemKind{"lock-not-found", "The lock is not held", http.StatusNotFound, false}
	methodNotAllowed     = &problemKind{"method-not-allowed", "The resource has no such method", http.StatusMethodNotAllowed, false}
	notAcceptable        = &problemKind{"not-acceptable", "There is no answer of an acceptable type", http.StatusNotAcceptable, false}
	bodyTimeout          = &problemKind{"body-timeout", "The body did not arrive in time", http.StatusRequestTimeout, true}
	lockEnded            = &problemKind{"lock-ended", "The lock has ended", http.StatusGone, false}
	pageExpired          = &problemKind{"page-expired", "The list can no longer be continued", http.StatusGone, false}
	versionMismatch      = &problemKind{"version-mismatch", "The lock is not in the version of If-Match", http.StatusPreconditionFailed, false}
	bodyTooLarge         = &problemKind{"body-too-large", "The body is too large", http.StatusRequestEntityTooLarge, false}
	unsupportedMediaType = &problemKind{"unsupported-media-type", "The body has a type that is not read", http.StatusUnsupportedMediaType, false}
	lockHeld             = &problemKind{"lock-held", "The lock is held", http.StatusLocked, true}
	tooManyCalls         = &problemKind{"too-many-calls", "The caller has too many calls", http.StatusTooManyRequests, true}
	internalError        = &problemKind{"internal-error", "Internal error", http.StatusInternalServerError, true}
	unavailable          = &problemKind{"unavailable", "The lock service is temporarily unavailable", http.StatusServiceUnavailable, true}
)

func newProblem(kind *problemKind, detail string) *problemError {
	return &problemError{
		Problem: Problem{Type: typePrefix + kind.name, Title: kind.title, Status: kind.status, Detail: detail, Retryable: kind.isRetryable},
		kind:    kind,
	}
}

// invalid returns the problem with mistakes in a request. The first of them is its detail.
func invalid(mistakes ...FieldError) *problemError {
	problem := newProblem(invalidRequest, mistakes[0].Field+" "+mistakes[0].Detail)
	problem.Errors = mistakes
	return problem
}
