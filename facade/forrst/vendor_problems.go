package forrst

import (
	"errors"
	"strings"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
)

// heldLockProblem is [releaseProblem] for functions of the vendor, which tell a lock
// that has expired from one that the caller never had.
func heldLockProblem(err error, sent string) error {
	switch {
	case errors.Is(err, lock.ErrInvalid):
		return invalidArguments(err)
	case !errors.Is(err, lock.ErrExpired):
		return releaseProblem(err, sent)
	}
	problem := envelope.Error{Code: envelope.LockNotFound, Message: "Lock has expired"}.
		With(wire.KeyDetails{Key: sent, Expired: true})
	return &problem
}

// fieldNames spells fields of a Lock in the way of the protocol, where that differs.
var fieldNames = strings.NewReplacer("spec.", "", "holderRef", "holder_ref", "apiVersion", "api_version", "releaseDelay", "release_delay")

// invalidArguments points at the arguments that break a rule of the Lock type. They
// have the names of the fields.
func invalidArguments(err error) error {
	invalid, ok := errors.AsType[*lock.InvalidError](err)
	if !ok || len(invalid.Problems) == 0 {
		problem := envelope.Error{Code: envelope.InvalidArguments, Message: err.Error()}.At(argumentsPointer)
		return &problem
	}
	var problems envelope.Errors
	for _, problem := range invalid.Problems {
		name := fieldNames.Replace(problem.Field)
		problems.Add(envelope.Error{Code: envelope.InvalidArguments, Message: name + ": " + problem.ErrorBody()}.
			At(envelope.Pointer(argumentsPointer, strings.Split(name, ".")...)))
	}
	return problems
}
