package rest

import (
	"errors"

	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/problems"
)

// What callers are told of errors is shared with package lock/lockhttp.
type (
	// Problem is an error as callers are told it (RFC 9457).
	Problem = problems.Document
	// Right is a right in the terms of a Role.
	Right = problems.Right
	// FieldError is one mistake in a request.
	FieldError = problems.FieldError
)

// lockErrors choose the problem for an error of package lock. The first error that matches counts.
// What only an operation itself can judge, such as whether a lock token was ever one of the lock's, it
// has turned into a problem before.
var lockErrors = []struct {
	err     error
	problem func(c *call, err error) *problems.Error
}{
	// The holder is named to every caller that may acquire the lock, as at all doors.
	{lock.ErrHeld, (*call).heldLock},
	{lock.ErrOtherGrant, about(problems.VersionMismatch, "Another grant holds the lock than the one of fencing_token; nothing was done")},
	{lock.ErrNotHeld, about(problems.LockNotFound, "No caller holds the lock")},
	{lock.ErrOwnerMismatch, about(problems.WrongToken, "The lock token is not one of this lock, or not the caller's")},
	{lock.ErrStale, about(problems.VersionMismatch, "The lock has changed; read it again for its present entity tag")},
	{lock.ErrPageExpired, about(problems.PageExpired, "The page before was too long ago; begin the list again")},
	{lock.ErrInvalid, (*call).invalidLock},
	{lock.ErrRefused, refusedLock},
	{lock.ErrUnauthenticated, func(_ *call, err error) *problems.Error { return problems.New(problems.Unauthenticated, err.Error()) }},
	{lock.ErrUnavailable, (*call).unavailableLock},
}

func about(kind *problems.Kind, detail string) func(*call, error) *problems.Error {
	return func(*call, error) *problems.Error { return problems.New(kind, detail) }
}

// problemOf returns what the caller is told about an error.
func (c *call) problemOf(err error) *problems.Error {
	if problem, ok := errors.AsType[*problems.Error](err); ok {
		return problem
	}
	if refused, ok := errors.AsType[*limits.Error](err); ok {
		return limitProblem(refused)
	}
	if namespace, ok := errors.AsType[*access.NamespaceError](err); ok {
		return namespaceProblem(namespace)
	}
	if right, ok := errors.AsType[*access.ForbiddenError](err); ok {
		problem := problems.New(problems.Forbidden, err.Error())
		problem.Right = &problems.Right{Verb: right.Verb, Resource: right.Resource, Namespace: right.Namespace}
		return problem
	}
	if _, isNothingBegun := errors.AsType[*server.AuthenticationError](err); isNothingBegun {
		switch {
		case errors.Is(err, lock.ErrInvalid):
			return problems.New(problems.InvalidRequest, err.Error())
		case errors.Is(err, lock.ErrUnavailable) && c.Request.Context().Err() == nil:
			return problems.New(problems.Unavailable, unavailable).Soon()
		}
	}
	// The end of the call's own context explains every other error.
	if c.Request.Context().Err() != nil {
		return problems.New(problems.Unavailable, "The call was cut short").Soon()
	}
	for _, each := range lockErrors {
		if errors.Is(err, each.err) {
			return each.problem(c, err)
		}
	}
	if !errors.Is(err, server.ErrPanic) {
		c.config.Logger.Error(err, "Call failed unexpectedly", "operation", c.operationName())
	}
	return problems.New(problems.InternalError, "The cause is in the log of the service")
}

const unavailable = "The lock service is temporarily unavailable"

func limitProblem(refused *limits.Error) *problems.Error {
	kind := problems.Unavailable
	if refused.IsCaller {
		kind = problems.TooManyCalls
	}
	problem := problems.New(kind, refused.Reason)
	problem.RetryAfter = refused.Wait()
	return problem
}

func namespaceProblem(err *access.NamespaceError) *problems.Error {
	if err.Fault == access.NamespaceNotServed {
		return problems.New(problems.NamespaceNotServed, "The path must name the namespace "+err.Name+": no other one is served here")
	}
	return problems.Invalid(FieldError{In: inPath, Field: namespacePart, Detail: "must be the name of a namespace: " + err.Rule, Value: err.Name})
}

func (c *call) heldLock(err error) *problems.Error {
	problem := problems.Held(err, c.config.Clock.Now())
	problem.Waiting = c.config.Locks.Waiting(c.Request.Context(), &c.Caller, c.acquired.fullKey(), err)
	return problem
}

func refusedLock(_ *call, err error) *problems.Error {
	problem := problems.New(problems.RefusedByCluster, "The cluster refuses it")
	if refused, ok := errors.AsType[*lock.RefusedError](err); ok {
		problem.Detail += ": " + refused.Reason
	}
	return problem
}

func (c *call) unavailableLock(err error) *problems.Error {
	c.config.Logger.Error(err, "Locks are unavailable", "operation", c.operationName())
	return problems.New(problems.Unavailable, unavailable).Soon()
}
