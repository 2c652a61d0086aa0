package rest

import (
	"errors"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/lock"
)

const (
	// retrySoon is when to try again what the service has no room for.
	retrySoon = time.Second
	// maxRetryAfter bounds when to try again to acquire: most locks are released before they expire.
	maxRetryAfter = time.Minute
)

// errPanic is the error of a call that panicked, which was logged.
var errPanic = errors.New("panic")

// lockErrors choose the problem for an error of package lock. The first error that matches counts.
// What only an operation itself can judge, such as whether a lock token was ever one of the lock's, it
// has turned into a problem before.
var lockErrors = []struct {
	err     error
	problem func(c *call, err error) *problemError
}{
	{lock.ErrHeld, (*call).heldProblem},
	{lock.ErrNotHeld, about(lockNotFound, "No caller holds the lock")},
	{lock.ErrOwnerMismatch, about(wrongToken, "The lock token is not one of this lock, or not the caller's")},
	{lock.ErrStale, about(versionMismatch, "The lock has changed; read it again for its present entity tag")},
	{lock.ErrPageExpired, about(pageExpired, "The page before was too long ago; begin the list again")},
	{lock.ErrInvalid, (*call).invalidLock},
	{lock.ErrRefused, refusedLock},
	{lock.ErrUnauthenticated, func(_ *call, err error) *problemError { return newProblem(unauthenticated, err.Error()) }},
	{lock.ErrUnavailable, (*call).unavailableLock},
}

func about(kind *problemKind, detail string) func(*call, error) *problemError {
	return func(*call, error) *problemError { return newProblem(kind, detail) }
}

// problemOf returns what the caller is told about an error.
func (c *call) problemOf(err error) *problemError {
	if problem, ok := errors.AsType[*problemError](err); ok {
		return problem
	}
	if refused, ok := errors.AsType[*limits.Error](err); ok {
		return limitProblem(refused)
	}
	if namespace, ok := errors.AsType[*access.NamespaceError](err); ok {
		return namespaceProblem(namespace)
	}
	if right, ok := errors.AsType[*access.ForbiddenError](err); ok {
		problem := newProblem(forbidden, err.Error())
		problem.Right = &Right{right.Verb, access.Resource, right.Namespace}
		return problem
	}
	// The end of the call's own context explains every other error.
	if c.request.Context().Err() != nil {
		return withRetry(newProblem(unavailable, "The call was cut short"))
	}
	for _, each := range lockErrors {
		if errors.Is(err, each.err) {
			return each.problem(c, err)
		}
	}
	if !errors.Is(err, errPanic) {
		c.config.Logger.Error(err, "Call failed unexpectedly", "operation", c.operationName())
	}
	return newProblem(internalError, "The cause is in the log of the service")
}

func withRetry(problem *problemError) *problemError {
	problem.retryAfter = retrySoon
	return problem
}

func limitProblem(refused *limits.Error) *problemError {
	kind := unavailable
	if refused.IsCaller {
		kind = tooManyCalls
	}
	return withRetry(newProblem(kind, refused.Reason))
}

func namespaceProblem(err *access.NamespaceError) *problemError {
	if err.Fault == access.NamespaceNotServed {
		return newProblem(namespaceNotServed, "The path must name the namespace "+err.Name+": no other one is served here")
	}
	return invalid(FieldError{In: inPath, Field: namespacePart, Detail: "must be the name of a namespace: " + err.Rule, Value: err.Name})
}

// heldProblem names the holder to every caller that may acquire the lock, as at all doors.
func (c *call) heldProblem(err error) *problemError {
	problem := newProblem(lockHeld, "Another caller holds the lock")
	problem.retryAfter = retrySoon
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
		problem.ExpiresAt = formatTime(held.ExpireTime)
		if !held.AcquireTime.IsZero() {
			problem.AcquiredAt = formatTime(held.AcquireTime)
		}
		problem.retryAfter = min(max(held.ExpireTime.Sub(c.config.Clock.Now()), retrySoon), maxRetryAfter)
	}
	return problem
}

func refusedLock(_ *call, err error) *problemError {
	problem := newProblem(refusedByCluster, "The cluster refuses it")
	if refused, ok := errors.AsType[*lock.RefusedError](err); ok {
		problem.Detail += ": " + refused.Reason
	}
	return problem
}

func (c *call) unavailableLock(err error) *problemError {
	c.config.Logger.Error(err, "Locks are unavailable", "operation", c.operationName())
	return withRetry(newProblem(unavailable, "The lock service is temporarily unavailable"))
}

// formatTime writes a time as the API of Kubernetes does, with microseconds.
func formatTime(at time.Time) string { return v1alpha1.NewTimestamp(at).String() }
