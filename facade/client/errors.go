package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
)

// outcome turns the errors of an answer about the lock into those of package lock.
// Other errors keep what they match.
func outcome(operation string, key v1alpha1.FullKey, err error) error {
	problems, ok := errors.AsType[envelope.Errors](err)
	if !ok {
		return fmt.Errorf("%s: %w", operation, err)
	}
	switch first := problems[0]; first.Code {
	case envelope.LockAcquisitionFailed:
		return heldError(key, first)
	case envelope.LockTimeout:
		return fmt.Errorf("%w: %w", lock.ErrTimeout, heldError(key, first))
	case envelope.LockNotFound:
		if hasExpired(first) {
			return fmt.Errorf("%s: %w", operation, lock.ErrExpired)
		}
		return fmt.Errorf("%s: %w", operation, lock.ErrNotHeld)
	case envelope.LockOwnershipMismatch:
		return fmt.Errorf("%s: %w", operation, lock.ErrOwnerMismatch)
	case envelope.LockRefused:
		return fmt.Errorf("%s: %w", operation, refusedError(first))
	case envelope.Unauthorized:
		return fmt.Errorf("%s: %w: %w", operation, lock.ErrUnauthenticated, problems)
	case envelope.Forbidden:
		return fmt.Errorf("%s: %w: %w", operation, lock.ErrForbidden, problems)
	case envelope.InvalidArguments:
		return fmt.Errorf("%s: %w", operation, invalidError(problems))
	case envelope.Unavailable, envelope.RateLimited, envelope.FunctionDisabled, envelope.DependencyError,
		envelope.Cancelled, envelope.DeadlineExceeded:
		if isNothingDone(first) {
			return fmt.Errorf("%s: %w: %w; %w", operation, lock.ErrUnavailable, problems, lock.ErrNothingDone)
		}
		return fmt.Errorf("%s: %w: %w", operation, lock.ErrUnavailable, problems)
	default:
		return fmt.Errorf("%s: %w", operation, problems)
	}
}

// isUnanswered reports whether what failed with err may have been carried out, or be
// carried out yet. An answer leaves that open if the façade itself cannot tell.
func isUnanswered(err error) bool {
	if _, ok := errors.AsType[*unansweredError](err); ok {
		return true
	}
	problems, ok := errors.AsType[envelope.Errors](err)
	if !ok {
		return false
	}
	switch problems[0].Code {
	case envelope.InternalError, envelope.Cancelled, envelope.DeadlineExceeded, envelope.DependencyError:
		return true
	default:
		return false
	}
}

// isNothingDone reports whether the façade has answered before it did anything.
func isNothingDone(problem envelope.Error) bool {
	var details wire.UnavailableDetails
	isRefused := problem.Code == envelope.RateLimited || problem.Code == envelope.FunctionDisabled
	return isRefused || problem.Code == envelope.Unavailable && json.Unmarshal(problem.Details, &details) == nil && details.NothingDone
}

// isUnavailable reports whether the façade answered that it cannot do it for the moment.
// A release may have happened all the same, an acquire not.
func isUnavailable(err error) bool {
	problems, ok := errors.AsType[envelope.Errors](err)
	return ok && problems[0].Code == envelope.Unavailable
}

func heldError(key v1alpha1.FullKey, problem envelope.Error) *lock.HeldError {
	held := &lock.HeldError{Key: key}
	var details wire.HeldDetails
	if json.Unmarshal(problem.Details, &details) != nil {
		return held
	}
	held.IsExpired = details.Expired
	if details.Holder == "" {
		return held
	}
	if expires, err := time.Parse(time.RFC3339, details.ExpiresAt); err == nil {
		held.Holder, held.ExpireTime = details.Holder, expires
	}
	return held
}

func refusedError(problem envelope.Error) *lock.RefusedError {
	var details wire.RefusedDetails
	if json.Unmarshal(problem.Details, &details) != nil || details.Reason == "" {
		return &lock.RefusedError{Reason: problem.Message}
	}
	return &lock.RefusedError{Reason: details.Reason}
}

func hasExpired(problem envelope.Error) bool {
	var details wire.KeyDetails
	return json.Unmarshal(problem.Details, &details) == nil && details.Expired
}

// invalidError names the fields of the lock, which arguments are called after.
func invalidError(problems envelope.Errors) error {
	invalid := new(lock.InvalidError)
	for _, problem := range problems {
		if problem.Source == nil || problem.Source.Pointer == nil {
			return fmt.Errorf("%w: %w", lock.ErrInvalid, problems)
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(*problem.Source.Pointer, "/call/arguments/"), "/")
		detail := strings.TrimPrefix(strings.TrimPrefix(problem.Message, name+": "), "Invalid value: ") // It is said again.
		invalid.Problems = append(invalid.Problems, field.Invalid(field.NewPath("spec", name), field.OmitValueType{}, detail))
	}
	return invalid
}

// longestBlock returns the longest wait that the façade permits, if that is why it
// refused a call.
func longestBlock(err error) (time.Duration, bool) {
	problems, ok := errors.AsType[envelope.Errors](err)
	if !ok || len(problems) != 1 || problems[0].Source == nil || problems[0].Source.Pointer == nil ||
		*problems[0].Source.Pointer != "/call/arguments/block/value" {
		return 0, false
	}
	var details envelope.BoundDetails
	if json.Unmarshal(problems[0].Details, &details) != nil {
		return 0, false
	}
	return details.Max.Length, details.Max.Length > 0
}
