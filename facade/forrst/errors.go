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

// callKind is the kind of call that asks for a lock. It decides what an error of package lock is
// answered with.
type callKind int

const (
	// lockExtension is the atomic lock extension.
	lockExtension callKind = iota
	// acquireFunction is the acquire function. It tells the holder.
	acquireFunction
	// lockFunction is one of the functions of docs/forrst.md, section 12.8.
	lockFunction
	// extendedFunction is one of the functions of docs/forrst.md, section 12.10, which tell an
	// expired lock from one that was never held.
	extendedFunction
	callKinds
)

// lockErrors choose the answer to an error of package lock. The first error that matches
// counts. What a kind of call has no answer to is unexpected, and an internal error.
var lockErrors = []struct {
	err     error
	answers [callKinds]lockAnswer
}{
	{lock.ErrExpired, [callKinds]lockAnswer{lockFunction: notFound, extendedFunction: notFoundExpired}},
	{lock.ErrHeld, [callKinds]lockAnswer{lockExtension: held, acquireFunction: heldByHolder}},
	{lock.ErrTimeout, [callKinds]lockAnswer{lockExtension: held, acquireFunction: heldByHolder}},
	{lock.ErrPageExpired, [callKinds]lockAnswer{extendedFunction: pageExpired}},
	{lock.ErrInvalid, [callKinds]lockAnswer{lockExtension: invalidOptions, acquireFunction: invalidArguments, extendedFunction: invalidArguments}},
	{lock.ErrNotHeld, [callKinds]lockAnswer{lockFunction: notFound, extendedFunction: notFound}},
	{lock.ErrOwnerMismatch, [callKinds]lockAnswer{lockFunction: ownedByOther, extendedFunction: ownedByOther}},
	{lock.ErrRefused, [callKinds]lockAnswer{lockExtension: refused, acquireFunction: refused, lockFunction: refused, extendedFunction: refused}},
}

// errorContext describes the call that an error of package lock ended.
type errorContext struct {
	kind callKind
	// key is as sent.
	key string
	// pointer leads to the options or arguments.
	pointer string
	// held are the details of a lock that is held, but for its holder.
	held wire.HeldDetails
	// block is how long the caller would wait. Nil if not at all.
	block *waitOption
	// isReading says that the request is being read. Its fields are then described in the words
	// of the readers of other members; later, in those of package lock.
	isReading bool
	// maxTTL is the longest ttl that is granted. Required if isReading.
	maxTTL time.Duration
}

type lockAnswer func(c *errorContext, err error) envelope.Errors

// problem returns what the caller is told, or err itself if it is not an error of package
// lock that its kind of call has an answer to.
func (c *errorContext) problem(err error) error {
	for _, each := range lockErrors {
		if errors.Is(err, each.err) {
			if answer := each.answers[c.kind]; answer != nil {
				return answer(c, err)
			}
		}
	}
	return err
}

// held says that the lock was not to be had: at once or, if the caller gave a time to wait,
// even if it is zero, within that time.
func held(c *errorContext, _ error) envelope.Errors {
	problem, details := envelope.Error{Code: envelope.LockAcquisitionFailed, Message: "Unable to acquire lock"}, c.held
	if c.block != nil {
		problem.Code = envelope.LockTimeout
		problem.Message = fmt.Sprintf("Lock acquisition timed out after %s %ss", c.block.Value, c.block.Unit)
		details.Waited = c.block.sent
	}
	return envelope.Errors{problem.With(details)}
}

func heldByHolder(c *errorContext, err error) envelope.Errors {
	by, ok := errors.AsType[*lock.HeldError](err)
	switch {
	case !ok:
	case by.IsExpired:
		c.held.Expired = true
	case by.Holder != "":
		c.held.Holder, c.held.ExpiresAt = by.Holder, envelope.FormatTimestamp(by.ExpireTime)
	}
	return held(c, err)
}

func notFound(c *errorContext, _ error) envelope.Errors {
	return envelope.Errors{envelope.Error{Code: envelope.LockNotFound, Message: "Lock does not exist"}.With(wire.KeyDetails{Key: c.key})}
}

func notFoundExpired(c *errorContext, _ error) envelope.Errors {
	return envelope.Errors{envelope.Error{Code: envelope.LockNotFound, Message: "Lock has expired"}.
		With(wire.KeyDetails{Key: c.key, Expired: true})}
}

func ownedByOther(c *errorContext, _ error) envelope.Errors {
	return envelope.Errors{envelope.Error{Code: envelope.LockOwnershipMismatch, Message: "Lock is owned by a different process"}.
		With(wire.KeyDetails{Key: c.key})}
}

func pageExpired(c *errorContext, _ error) envelope.Errors {
	return envelope.Errors{envelope.Error{Code: envelope.InvalidArguments, Message: "continue is too old: list the locks from the beginning"}.
		At(c.pointer + "/continue")}
}

// refused says why the cluster refuses what the caller may ask for.
func refused(c *errorContext, err error) envelope.Errors {
	details := wire.RefusedDetails{Key: c.key}
	if by, ok := errors.AsType[*lock.RefusedError](err); ok {
		details.Reason = by.Reason
	}
	return envelope.Errors{envelope.Error{Code: envelope.LockRefused, Message: "The cluster refuses it: " + details.Reason}.With(details)}
}

func invalidOptions(c *errorContext, err error) envelope.Errors {
	return envelope.Errors{envelope.Error{Code: envelope.InvalidArguments, Message: err.Error()}.At(c.pointer)}
}

// fieldNames spells fields of a Lock in the way of the protocol, where that differs.
var fieldNames = strings.NewReplacer("spec.", "", "holderRef", "holder_ref", "apiVersion", "api_version", "releaseDelay", "release_delay")

// elements spells elements of arrays as members.
var elements = strings.NewReplacer("[", ".", "]", "")

// invalidArguments points at the options or arguments that break a rule of the Lock type.
// They have the names of its fields.
func invalidArguments(c *errorContext, err error) envelope.Errors {
	invalid, ok := errors.AsType[*lock.InvalidError](err)
	if !ok || len(invalid.Problems) == 0 {
		return invalidOptions(c, err)
	}
	var problems envelope.Errors
	for _, problem := range invalid.Problems {
		problems.Add(c.invalidField(problem))
	}
	return problems
}

func (c *errorContext) invalidField(problem *field.Error) envelope.Error {
	name := fieldNames.Replace(problem.Field)
	answer := envelope.Error{Code: envelope.InvalidArguments, Message: name + ": " + problem.ErrorBody()}
	switch {
	case !c.isReading:
	case name == "ttl":
		return envelope.Exceeds(c.maxTTL, c.pointer, "ttl")
	case name == "release_delay" && problem.Type == field.ErrorTypeInvalid:
		return envelope.Exceeds(v1alpha1.MaxReleaseDelay, c.pointer, "release_delay")
	case name == "function" && c.kind == lockExtension:
		// The function is that of the call.
		answer.Message = `scope must be "global": the name of the function ` + problem.Detail
		return answer.At(c.pointer + "/scope")
	case name == "function" && problem.Type == field.ErrorTypeRequired:
		answer.Message = `function is required when scope is "function"`
	case name == "function" && problem.Type == field.ErrorTypeForbidden:
		answer.Message = `function must be absent unless scope is "function"`
	case name == "reason" && problem.Type == field.ErrorTypeTooLong:
		answer.Message = fmt.Sprintf("%s must be at most %d characters", name, rules.MaxReasonLength)
	case name == "key", name == "owner", name == "function", name == "reason":
		answer.Message = name + " " + problem.Detail
	}
	return answer.At(envelope.Pointer(c.pointer, strings.Split(elements.Replace(name), ".")...))
}

// addInvalid adds the rules that a request breaks to the problems that were found when it was
// read. A member that could not be read is not reported again, nor are its own members.
func (h *Handler) addInvalid(problems *envelope.Errors, err error, about errorContext) {
	about.isReading, about.maxTTL = true, h.config.Locks.MaxTTL()
	read := *problems
	for _, problem := range invalidArguments(&about, err) {
		isReported := func(other envelope.Error) bool {
			below, ok := strings.CutPrefix(*problem.Source.Pointer, *other.Source.Pointer)
			return ok && (below == "" || below[0] == '/')
		}
		if !slices.ContainsFunc(read, isReported) {
			problems.Add(problem)
		}
	}
}

// Errors that do not tell their cause, which goes to the log.
var (
	internalError = envelope.Error{Code: envelope.InternalError, Message: "Internal error"}
	// cutShort is not UNAVAILABLE, after which calls are repeated: the function has begun.
	cutShort         = envelope.Error{Code: envelope.Cancelled, Message: "The server stopped before the call was over"}
	cancelled        = envelope.Error{Code: envelope.Cancelled, Message: "The client went away"}
	deadlineExceeded = envelope.Error{Code: envelope.DeadlineExceeded, Message: "The call took too long"}
)

// refusal answers an error of package limits. Nothing has happened then, as RATE_LIMITED says by itself.
func refusal(err *limits.Error) envelope.Error {
	if err.IsCaller {
		return envelope.Error{Code: envelope.RateLimited, Message: err.Reason}.With(wire.UnavailableDetails{RetryAfter: envelope.NewDuration(err.Wait())})
	}
	return unavailable(err.Reason, err.Wait(), true)
}

func unavailable(message string, retryAfter time.Duration, isNothingDone bool) envelope.Error {
	return envelope.Error{Code: envelope.Unavailable, Message: message}.
		With(wire.UnavailableDetails{RetryAfter: envelope.NewDuration(retryAfter), NothingDone: isNothingDone})
}

// unavailableLocks answers an error that matches [lock.ErrUnavailable].
func unavailableLocks(err error) envelope.Errors {
	return envelope.Errors{unavailable("The lock service is temporarily unavailable", limits.DefaultRetryAfter, errors.Is(err, lock.ErrNothingDone))}
}

// missingRight are the details of FORBIDDEN, in the terms of a Role.
type missingRight struct {
	Verb      string `json:"verb"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace"`
}

// problems turns the error that ended a call into what its caller is told. Function is the
// name as sent, or empty.
func (h *Handler) problems(ctx context.Context, err error, function string) envelope.Errors {
	if several, ok := errors.AsType[envelope.Errors](err); ok && len(several) > 0 {
		return several
	}
	if one, ok := errors.AsType[*envelope.Error](err); ok {
		return envelope.Errors{*one}
	}
	if refused, ok := errors.AsType[*limits.Error](err); ok {
		return envelope.Errors{refusal(refused)}
	}
	if fault, ok := errors.AsType[*httpError](err); ok {
		return envelope.Errors{{Code: envelope.InvalidRequest, Message: fault.message}}
	}
	if namespace, ok := errors.AsType[*access.NamespaceError](err); ok {
		return envelope.Errors{{Code: envelope.InvalidArguments, Message: namespaceMessage(namespace)}}
	}
	if forbidden, ok := errors.AsType[*access.ForbiddenError](err); ok {
		return envelope.Errors{envelope.Error{Code: envelope.Forbidden, Message: err.Error()}.
			With(missingRight{forbidden.Verb, forbidden.Resource, forbidden.Namespace})}
	}
	_, isNothingBegun := errors.AsType[*server.AuthenticationError](err)
	switch {
	case errors.Is(err, server.ErrPanic): // It is in the log.
		return envelope.Errors{internalError}
	case errors.Is(err, lock.ErrUnauthenticated):
		return envelope.Errors{{Code: envelope.Unauthorized, Message: err.Error()}}
	case isNothingBegun && errors.Is(err, lock.ErrInvalid):
		return envelope.Errors{{Code: envelope.InvalidRequest, Message: err.Error()}}
	case isNothingBegun:
		// So the caller may send the request again, even if the server stops.
		return unavailableLocks(err)
	// The end of the call's own context explains every other error.
	case errors.Is(context.Cause(ctx), server.ErrStopped):
		return envelope.Errors{cutShort}
	case errors.Is(ctx.Err(), context.Canceled):
		return envelope.Errors{cancelled}
	case ctx.Err() != nil:
		return envelope.Errors{deadlineExceeded}
	case errors.Is(err, lock.ErrUnavailable):
		h.config.Logger.Error(err, "Locks are unavailable", "function", function)
		return unavailableLocks(err)
	}
	h.config.Logger.Error(err, "Call failed unexpectedly", "function", function)
	return envelope.Errors{internalError}
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
