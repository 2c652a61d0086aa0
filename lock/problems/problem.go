package problems

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// ContentType is the media type of a [Document].
const ContentType = "application/problem+json"

// Document is an error as callers are told it (RFC 9457).
type Document struct {
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

	// Key is that of the lock, of several that were asked for together, which the problem is about.
	Key string `json:"key,omitempty"`
	// Holder is the identity that holds the lock. Empty if the problem is not about that, or if it
	// is not known.
	Holder     string `json:"holder,omitempty"`
	AcquiredAt string `json:"acquired_at,omitempty"`
	ExpiresAt  string `json:"expires_at,omitempty"`
	// Waiting is how many callers wait for the lock. Nil if that is not known.
	Waiting *int `json:"waiting,omitempty"`
	// Right is what the caller is not allowed to do, in the terms of a Role.
	Right *Right `json:"right,omitempty"`
	// Errors are all mistakes in the request.
	Errors []FieldError `json:"errors,omitempty"`
}

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
	// Value is as sent. Nil if there is none, if it is long, or if it may be a secret.
	Value any `json:"value,omitempty"`
	// Minimum and Maximum bound a number, if they are what it breaks.
	Minimum *float64 `json:"minimum,omitempty"`
	Maximum *float64 `json:"maximum,omitempty"`
	// MaxLength bounds a text, in characters, if that is what it breaks.
	MaxLength int `json:"max_length,omitempty"`
}

// Error ends a request with a [Document].
type Error struct {
	Document

	Kind *Kind
	// RetryAfter is when to try again. Zero means that nothing is said about it.
	RetryAfter time.Duration
}

// Error implements error.
func (e *Error) Error() string { return e.Detail }

// New returns a problem of a kind.
func New(kind *Kind, detail string) *Error {
	return &Error{
		Document: Document{Type: typePrefix + kind.Name, Title: kind.title, Status: kind.Status, Detail: detail, Retryable: kind.isRetryable},
		Kind:     kind,
	}
}

// RetrySoon is when to try again what may succeed at any moment.
const RetrySoon = time.Second

// maxRetryAfter bounds when to try again to acquire: most locks are released before they expire.
const maxRetryAfter = time.Minute

// Soon returns the problem with the advice to try again after [RetrySoon].
func (e *Error) Soon() *Error {
	e.RetryAfter = RetrySoon
	return e
}

// SetHeaders sets the headers that a problem of its kind has beside the content type.
func (e *Error) SetHeaders(header http.Header) {
	if e.RetryAfter > 0 {
		header.Set("Retry-After", strconv.FormatInt(int64((e.RetryAfter+time.Second-1)/time.Second), 10))
	}
	if e.Status == http.StatusUnsupportedMediaType {
		header.Set("Accept", "application/json")
		header.Set("Accept-Encoding", "identity")
	}
}

// Invalid returns the problem with mistakes in a request, of which there is at least one. The first of
// them is its detail.
func Invalid(mistakes ...FieldError) *Error {
	problem := New(InvalidRequest, mistakes[0].Field+" "+mistakes[0].Detail)
	problem.Errors = mistakes
	return problem
}

// Held returns the problem with a lock that is held, for an error that matches [lock.ErrHeld]. It names
// the holder, and since and until when, as far as the error does.
func Held(err error, now time.Time) *Error {
	problem := New(LockHeld, "Another caller holds the lock").Soon()
	if errors.Is(err, lock.ErrTimeout) {
		problem.Detail = "Another caller held the lock for all of wait_seconds"
	}
	held, ok := errors.AsType[*lock.HeldError](err)
	switch {
	case !ok:
	case held.IsExpired:
		problem.Detail = "The lock has expired, but is kept a moment longer, since clocks may differ"
	case held.Holder != "":
		problem.Holder = held.Holder
		problem.ExpiresAt = FormatTime(held.ExpireTime)
		if !held.AcquireTime.IsZero() {
			problem.AcquiredAt = FormatTime(held.AcquireTime)
		}
		problem.RetryAfter = min(max(held.ExpireTime.Sub(now), RetrySoon), maxRetryAfter)
	}
	return problem
}

// FormatTime writes a time as the API of Kubernetes does, with microseconds.
func FormatTime(at time.Time) string { return v1alpha1.NewTimestamp(at).String() }
