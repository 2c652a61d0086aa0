package facade

import (
	"context"
	"errors"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/lock"
)

// Errors that say nothing about their cause, which is the log's business.
var (
	internalError = forrst.Error{Code: forrst.InternalError, Message: "Internal error"}
	// cutShort is not UNAVAILABLE, after which calls are repeated: the function has begun.
	cutShort         = forrst.Error{Code: forrst.Cancelled, Message: "The server stopped before the call was over"}
	cancelled        = forrst.Error{Code: forrst.Cancelled, Message: "The client went away"}
	deadlineExceeded = forrst.Error{Code: forrst.DeadlineExceeded, Message: "The call took too long"}

	unavailableError = forrst.Error{Code: forrst.Unavailable, Message: "The lock service is temporarily unavailable"}.
				With(map[string]any{"retry_after": retryAfter})
)

// problems turns what ended a call into what its caller is told.
func (c *call) problems(ctx context.Context, err error) forrst.Errors {
	var several forrst.Errors
	var one *forrst.Error
	switch {
	case errors.As(err, &several) && len(several) > 0:
		return several
	case errors.As(err, &one):
		return forrst.Errors{*one}
	// The end of the call's own context explains every other error.
	case errors.Is(context.Cause(ctx), errStopped):
		return forrst.Errors{cutShort}
	case errors.Is(ctx.Err(), context.Canceled):
		return forrst.Errors{cancelled}
	case ctx.Err() != nil:
		return forrst.Errors{deadlineExceeded}
	case errors.Is(err, lock.ErrUnavailable):
		c.config.Logger.Error(err, "Locks are unavailable", "function", c.request.Call.Function)
		return forrst.Errors{unavailableError}
	}
	c.config.Logger.Error(err, "Call failed unexpectedly", "function", c.request.Call.Function)
	return forrst.Errors{internalError}
}
