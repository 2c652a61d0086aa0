package forrst

import (
	"context"
	"errors"
	"regexp"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// cancellationToken is what tokens look like (docs/forrst.md, section 10.4).
var cancellationToken = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,100}$`)

// cancellation is the extension by which another call can end this one. It has no entry
// in the response.
func (c *call) cancellation(position int) (wrapper, envelope.Errors) {
	var problems envelope.Errors
	fields := c.readOptions(position, &problems)
	token := readToken(&fields)
	if len(problems) > 0 {
		return nil, problems
	}
	return func(invoke Invocation) Invocation {
		return func(ctx context.Context) (any, error) { return c.invokeCancellable(ctx, token, invoke) }
	}, nil
}

func readToken(fields *envelope.Fields) string {
	token, ok := fields.RequiredText("token")
	if ok && !cancellationToken.MatchString(token) {
		fields.Fail("token", "must be at most 100 letters, digits, hyphens and underscores")
	}
	return token
}

// invokeCancellable runs the function unless or until the token is cancelled. A token
// that has been cancelled counts, too, for a call that comes after that.
func (c *call) invokeCancellable(ctx context.Context, token string, invoke Invocation) (any, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	entry := &cancellable{cancel: cancel}
	key := cancellationKey{c.Caller.Holder(), token}
	end, ok := c.cancellations.begin(key, entry)
	if !ok {
		return nil, cancelledProblem(token)
	}
	defer end()
	c.markCompleted = entry.markCompleted
	result, err := invoke(ctx)
	entry.markCompleted() // The function has not, if another extension failed before it.
	if entry.isCancelled() {
		c.undoUnanswered(ctx, err)
		return nil, cancelledProblem(token)
	}
	return result, err
}

func cancelledProblem(token string) error {
	problem := envelope.Error{Code: envelope.Cancelled, Message: "The call was cancelled"}.With(tokenDetails{token})
	return &problem
}

type tokenDetails struct {
	Token string `json:"token"`
}

type cancelResult struct {
	Cancelled bool   `json:"cancelled"`
	Token     string `json:"token"`
}

// prepareCancel cancels calls of the same caller on the same replica.
func (c *call) prepareCancel() (Invocation, envelope.Errors) {
	var problems envelope.Errors
	fields := c.readArguments(&problems)
	token := readToken(&fields)
	return func(context.Context) (any, error) {
		err := c.cancellations.cancel(cancellationKey{c.Caller.Holder(), token})
		if err == nil {
			return cancelResult{Cancelled: true, Token: token}, nil
		}
		problem := envelope.Error{Code: envelope.CancellationTokenUnknown, Message: "No call has the token"}
		if errors.Is(err, errTooLate) {
			problem = envelope.Error{Code: envelope.CancellationTooLate, Message: "The function of the call is over"}
		}
		problem = problem.With(tokenDetails{token})
		return nil, &problem
	}, problems
}
