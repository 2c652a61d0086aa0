package rest

import (
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/problems"
	"forrst.dev/lock-operator/lock/rules"
)

// fieldNames spells the fields of a Lock, and of the requests of package lock, as this door does.
var fieldNames = strings.NewReplacer("spec.", "", "holderRef", "holder_ref", "apiVersion", "api_version",
	"releaseDelay", "release_delay_seconds", "ttl", "ttl_seconds", "wait", "wait_seconds")

// addInvalid adds what an [*lock.InvalidError] tells, unless the reader of the field has told it.
func addInvalid(found *mistakes, err error) {
	problem, ok := errors.AsType[*lock.InvalidError](err)
	if !ok {
		return
	}
	for _, each := range problem.Problems {
		mistake := fieldErrorOf(each)
		isTold := slices.ContainsFunc(*found, func(told FieldError) bool {
			below, ok := strings.CutPrefix(mistake.Field, told.Field)
			return ok && (below == "" || below[0] == '.')
		})
		if !isTold {
			found.Add(mistake)
		}
	}
}

// fieldErrorOf words one mistake as this door names its fields.
func fieldErrorOf(problem *field.Error) FieldError {
	mistake := FieldError{In: inBody, Field: fieldNames.Replace(problem.Field), Detail: problem.Detail}
	switch problem.Field {
	case "spec.key":
		mistake.In = inPath
	case "reason", "continue":
		mistake.In = inQuery
	}
	if problem.Type == field.ErrorTypeTooLong {
		mistake.Detail = "is too long"
		if mistake.Field == "reason" {
			mistake.MaxLength = rules.MaxReasonLength
		}
		return mistake
	}
	if problem.Type == field.ErrorTypeDuplicate {
		mistake.Detail = "must not be given twice"
	}
	if mistake.Detail == "" {
		mistake.Detail = problem.Type.String()
	}
	if text, ok := problem.BadValue.(string); ok && text != "" {
		mistake.Value = strings.ToValidUTF8(text, "\uFFFD")
	}
	return mistake
}

// invalidLock words what package lock finds invalid.
func (c *call) invalidLock(err error) *problems.Error {
	var found mistakes
	addInvalid(&found, err)
	if len(found) == 0 {
		return problems.New(problems.InvalidRequest, err.Error())
	}
	return problems.Invalid(found...)
}
