package forrst

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// callKind is the kind of call that asks for a lock. It decides what an error of package lock is answered with.
type callKind int

const (
	// lockExtension is the atomic lock extension.
	lockExtension callKind = iota
	// acquireFunction is the acquire function, of one lock or of several. It tells the holder.
	acquireFunction
	// lockFunction is one of the functions of docs/forrst.md, section 12.8.
	lockFunction
	// extendedFunction is one of the functions of docs/forrst.md, section 12.10, which tell an expired lock from one that was
	// never held.
	extendedFunction
)

// errorContext describes the call that an error of package lock ended.
type errorContext struct {
	kind    callKind
	key     string // as sent
	pointer string // leads to the options or arguments
	// held are the details of a lock that is held, but for its holder. Those who acquire a lock need them.
	held  wire.HeldDetails
	block *waitOption // how long the caller would wait, nil if not at all
}

// problem returns what the caller is told, or err itself if that is no error of package lock which a call of this kind
// expects: then it is an internal error.
func (c *errorContext) problem(err error) error {
	isAcquire := c.kind == lockExtension || c.kind == acquireFunction
	problem := envelope.Error{}
	switch {
	case isAcquire && (errors.Is(err, lock.ErrHeld) || errors.Is(err, lock.ErrTimeout)):
		problem = c.heldProblem(err)
	case c.kind == extendedFunction && errors.Is(err, lock.ErrPageExpired):
		problem.Code, problem.Message = envelope.InvalidArguments, "continue is too old: list the locks from the beginning"
		problem = problem.At(c.pointer + "/continue")
	case c.kind != lockFunction && errors.Is(err, lock.ErrInvalid):
		return c.invalid(err)
	case !isAcquire && errors.Is(err, lock.ErrNotHeld):
		details := wire.KeyDetails{Key: c.key, Expired: c.kind == extendedFunction && errors.Is(err, lock.ErrExpired)}
		problem.Code, problem.Message = envelope.LockNotFound, "Lock does not exist"
		if details.Expired {
			problem.Message = "Lock has expired"
		}
		problem = problem.With(details)
	case !isAcquire && errors.Is(err, lock.ErrOwnerMismatch):
		problem.Code, problem.Message = envelope.LockOwnershipMismatch, "Lock is owned by a different process"
		problem = problem.With(wire.KeyDetails{Key: c.key})
	case errors.Is(err, lock.ErrRefused):
		details := wire.RefusedDetails{Key: c.key}
		if by, ok := errors.AsType[*lock.RefusedError](err); ok {
			details.Reason = by.Reason
		}
		problem.Code, problem.Message = envelope.LockRefused, "The cluster refuses it: "+details.Reason
		problem = problem.With(details)
	default:
		return err
	}
	return envelope.Errors{problem}
}

// heldProblem says that the lock was not to be had: at once or, if the caller gave a time to wait, even if it is zero,
// within that time.
func (c *errorContext) heldProblem(err error) envelope.Error {
	details := c.held
	if by, ok := errors.AsType[*lock.HeldError](err); ok && c.kind == acquireFunction {
		details.Expired = by.IsExpired
		if !by.IsExpired && by.Holder != "" {
			details.Holder, details.ExpiresAt = by.Holder, envelope.FormatTimestamp(by.ExpireTime)
		}
	}
	problem := envelope.Error{Code: envelope.LockAcquisitionFailed, Message: "Unable to acquire lock"}
	if c.block != nil {
		problem.Code = envelope.LockTimeout
		problem.Message = fmt.Sprintf("Lock acquisition timed out after %s %ss", c.block.Value, c.block.Unit)
		details.Waited = c.block.sent
	}
	return problem.With(details)
}

// invalid points at the arguments that break a rule of the Lock type, in the words of package lock.
func (c *errorContext) invalid(err error) envelope.Errors {
	invalid, ok := errors.AsType[*lock.InvalidError](err)
	if !ok || len(invalid.Problems) == 0 || c.kind == lockExtension {
		return envelope.Errors{envelope.Error{Code: envelope.InvalidArguments, Message: err.Error()}.At(c.pointer)}
	}
	var problems envelope.Errors
	for _, problem := range invalid.Problems {
		name := fieldNames.Replace(problem.Field)
		told := envelope.Error{Code: envelope.InvalidArguments, Message: name + ": " + problem.ErrorBody()}
		problems.Add(told.At(fieldPointer(c.pointer, name)))
	}
	return problems
}

// fieldNames spells fields of a Lock in the way of the protocol, where that differs.
var fieldNames = strings.NewReplacer("spec.", "", "holderRef", "holder_ref", "apiVersion", "api_version", "releaseDelay", "release_delay")

// elements spells elements of arrays as members.
var elements = strings.NewReplacer("[", ".", "]", "")

func fieldPointer(parent, name string) string {
	return envelope.Pointer(parent, strings.Split(elements.Replace(name), ".")...)
}

// addInvalid adds the error for a request that cannot be granted, if there is one, to the problems that were found when
// it was read. A member that could not be read is not reported again, nor are its own members.
func (c *call) addInvalid(kind callKind, pointer string, err error) {
	if err == nil {
		return
	}
	invalid, ok := errors.AsType[*lock.InvalidError](err)
	if !ok {
		c.faults.Add(envelope.Error{Code: envelope.InvalidArguments, Message: err.Error()}.At(pointer))
		return
	}
	read := c.faults
	for _, each := range invalid.Problems {
		problem := c.invalidField(kind, pointer, each)
		isReported := func(other envelope.Error) bool {
			if other.Source == nil {
				return false
			}
			below, ok := strings.CutPrefix(*problem.Source.Pointer, *other.Source.Pointer)
			return ok && (below == "" || below[0] == '/')
		}
		if !slices.ContainsFunc(read, isReported) {
			c.faults.Add(problem)
		}
	}
}

// invalidField describes the field of a request that is being read in the words of the readers of other members.
func (c *call) invalidField(kind callKind, pointer string, problem *field.Error) envelope.Error {
	name := fieldNames.Replace(problem.Field)
	answer := envelope.Error{Code: envelope.InvalidArguments, Message: name + ": " + problem.ErrorBody()}
	switch {
	case name == "ttl":
		return envelope.Exceeds(c.config.Locks.MaxTTL(), pointer, "ttl")
	case name == "release_delay" && problem.Type == field.ErrorTypeInvalid:
		return envelope.Exceeds(v1alpha1.MaxReleaseDelay, pointer, "release_delay")
	case name == "function" && kind == lockExtension:
		// The function is that of the call.
		answer.Message = `scope must be "global": the name of the function ` + problem.Detail
		return answer.At(pointer + "/scope")
	case name == "function" && problem.Type == field.ErrorTypeRequired:
		answer.Message = `function is required when scope is "function"`
	case name == "function" && problem.Type == field.ErrorTypeForbidden:
		answer.Message = `function must be absent unless scope is "function"`
	case name == "reason" && problem.Type == field.ErrorTypeTooLong:
		answer.Message = fmt.Sprintf("%s must be at most %d characters", name, rules.MaxReasonLength)
	case name == "key", name == "owner", name == "function", name == "reason":
		answer.Message = name + " " + problem.Detail
	}
	return answer.At(fieldPointer(pointer, name))
}

// internalError does not tell its cause, which goes to the log.
func internalError() envelope.Errors {
	return envelope.Errors{{Code: envelope.InternalError, Message: "Internal error"}}
}

// unavailable answers what may be tried again later. Nothing has happened if the call was refused for a limit.
func unavailable(message string, retryAfter time.Duration, isNothingDone bool) envelope.Errors {
	return envelope.Errors{envelope.Error{Code: envelope.Unavailable, Message: message}.
		With(wire.UnavailableDetails{RetryAfter: envelope.NewDuration(retryAfter), NothingDone: isNothingDone})}
}

// unavailableLocks answers an error that matches [lock.ErrUnavailable].
func unavailableLocks(err error) envelope.Errors {
	return unavailable("The lock service is temporarily unavailable", limits.DefaultRetryAfter, errors.Is(err, lock.ErrNothingDone))
}

// problems turns the error that ended the call into what its caller is told.
func (c *call) problems(err error) envelope.Errors {
	ctx, function := c.Request.Context(), c.request.Call.Function
	if several, ok := errors.AsType[envelope.Errors](err); ok && len(several) > 0 {
		return several
	}
	if one, ok := errors.AsType[*envelope.Error](err); ok {
		return envelope.Errors{*one}
	}
	if refused, ok := errors.AsType[*limits.Error](err); ok {
		problems := unavailable(refused.Reason, refused.Wait(), !refused.IsCaller) // RATE_LIMITED says by itself that nothing is done.
		if refused.IsCaller {
			problems[0].Code = envelope.RateLimited
		}
		return problems
	}
	if fault, ok := errors.AsType[*server.RequestError](err); ok {
		return envelope.Errors{{Code: envelope.InvalidRequest, Message: fault.Message}}
	}
	if namespace, ok := errors.AsType[*access.NamespaceError](err); ok {
		return envelope.Errors{{Code: envelope.InvalidArguments, Message: namespaceMessage(namespace)}}
	}
	if forbidden, ok := errors.AsType[*access.ForbiddenError](err); ok {
		return envelope.Errors{envelope.Error{Code: envelope.Forbidden, Message: err.Error()}.
			With(struct { // In the terms of a Role.
				Verb      string `json:"verb"`
				Resource  string `json:"resource"`
				Namespace string `json:"namespace"`
			}{forbidden.Verb, forbidden.Resource, forbidden.Namespace})}
	}
	_, isNothingBegun := errors.AsType[*server.AuthenticationError](err)
	switch {
	case errors.Is(err, server.ErrPanic): // It is in the log.
		return internalError()
	case errors.Is(err, lock.ErrUnauthenticated):
		return envelope.Errors{{Code: envelope.Unauthorized, Message: err.Error()}}
	case isNothingBegun && errors.Is(err, lock.ErrInvalid):
		return envelope.Errors{{Code: envelope.InvalidRequest, Message: err.Error()}}
	case isNothingBegun:
		// So the caller may send the request again, even if the server stops.
		return unavailableLocks(err)
	// The end of the call's own context explains every other error.
	case errors.Is(context.Cause(ctx), server.ErrStopped):
		// Not UNAVAILABLE, after which calls are repeated: the function has begun.
		return envelope.Errors{{Code: envelope.Cancelled, Message: "The server stopped before the call was over"}}
	case errors.Is(ctx.Err(), context.Canceled):
		return envelope.Errors{{Code: envelope.Cancelled, Message: "The client went away"}}
	case ctx.Err() != nil:
		return envelope.Errors{{Code: envelope.DeadlineExceeded, Message: "The call took too long"}}
	case errors.Is(err, lock.ErrUnavailable):
		c.config.Logger.Error(err, "Locks are unavailable", "function", function)
		return unavailableLocks(err)
	}
	c.config.Logger.Error(err, "Call failed unexpectedly", "function", function)
	return internalError()
}

// namespaceMessage says what is wrong with the namespaces that a request names.
func namespaceMessage(err *access.NamespaceError) string {
	switch err.Fault {
	case access.NamespacesDiffer:
		return fmt.Sprintf("The path and the %s header must not name different namespaces, %q and %q", wire.NamespaceHeader, err.First, err.Name)
	case access.NamespaceNotServed:
		return fmt.Sprintf("The %s header and the path must name the namespace %q or none: no other namespace is served here", wire.NamespaceHeader, err.Name)
	case access.NamespaceMissing:
		return fmt.Sprintf("The caller is no service account, so the request must name a namespace, by the %s header or by the path %s/{namespace}",
			wire.NamespaceHeader, wire.Path)
	default:
		return err.Error()
	}
}
