package forrst

import (
	"context"
	"errors"

	"forrst.dev/lock-operator/facade/forrst/envelope"
	"forrst.dev/lock-operator/lock"
)

// Errors that say nothing about their cause, which is the log's business.
var (
	internalError = envelope.Error{Code: envelope.InternalError, Message: "Internal error"}
	// cutShort is not UNAVAILABLE, after which calls are repeated: the function has begun.
	cutShort         = envelope.Error{Code: envelope.Cancelled, Message: "The server stopped before the call was over"}
	cancelled        = envelope.Error{Code: envelope.Cancelled, Message: "The client went away"}
	deadlineExceeded = envelope.Error{Code: envelope.DeadlineExceeded, Message: "The call took too long"}

	unavailableError = envelope.Error{Code: envelope.Unavailable, Message: "The lock service is temporarily unavailable"}.
				With(map[string]any{"retry_after": retryAfter})
)

// problems turns what ended a call into what its caller is told.
func (c *call) problems(ctx context.Context, err error) envelope.Errors {
	var several envelope.Errors
	var one *envelope.Error
	switch {
	case errors.As(err, &several) && len(several) > 0:
		return several
	case errors.As(err, &one):
		return envelope.Errors{*one}
	// The end of the call's own context explains every other error.
	case errors.Is(context.Cause(ctx), errStopped):
		return envelope.Errors{cutShort}
	case errors.Is(ctx.Err(), context.Canceled):
		return envelope.Errors{cancelled}
	case ctx.Err() != nil:
		return envelope.Errors{deadlineExceeded}
	case errors.Is(err, lock.ErrUnavailable):
		c.config.Logger.Error(err, "Locks are unavailable", "function", c.request.Call.Function)
		return envelope.Errors{unavailableError}
	}
	c.config.Logger.Error(err, "Call failed unexpectedly", "function", c.request.Call.Function)
	return envelope.Errors{internalError}
}
