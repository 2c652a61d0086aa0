package facade

import (
	"slices"
	"time"

	"forrst.dev/lock-operator/facade/forrst"
)

// retryAdvice is the data of the retry extension (section 10.5).
type retryAdvice struct {
	Allowed     bool             `json:"allowed"`
	Strategy    string           `json:"strategy,omitempty"`
	After       *forrst.Duration `json:"after,omitempty"`
	MaxAttempts int              `json:"max_attempts,omitempty"`
}

func retry(strategy string, after time.Duration, maxAttempts int) retryAdvice {
	advice := retryAdvice{Allowed: true, Strategy: strategy, MaxAttempts: maxAttempts}
	if after > 0 {
		advice.After = new(forrst.NewDuration(after))
	}
	return advice
}

// retryAdvices are what to do about errors that may not come again. About others there
// is nothing to be done.
var retryAdvices = map[forrst.Code]retryAdvice{
	forrst.RateLimited:           retry("fixed", time.Minute, 3),
	forrst.Unavailable:           retry("exponential", time.Second, 5),
	forrst.DeadlineExceeded:      retry("immediate", 0, 1),
	forrst.InternalError:         retry("exponential", time.Second, 3),
	forrst.DependencyError:       retry("exponential", 2*time.Second, 3),
	forrst.IdempotencyProcessing: retry("fixed", time.Second, 3),
	forrst.ServerMaintenance:     retry("fixed", time.Minute, 1),
	forrst.FunctionMaintenance:   retry("fixed", time.Minute, 1),
	forrst.FunctionDisabled:      retry("fixed", 30*time.Second, 2),
	forrst.LockAcquisitionFailed: retry("exponential", time.Second, 3),
	forrst.LockTimeout:           retry("exponential", time.Second, 3),
}

// beginRetry makes a failure tell whether to try again, if the caller wants to know. A
// function that was routed may have told already.
func (c *call) beginRetry() {
	position := c.position(forrst.Retry)
	if position < 0 {
		return
	}
	c.decorate = append(c.decorate, func() {
		if len(c.response.Errors) > 0 && !slices.ContainsFunc(c.response.Extensions, isRetry) {
			c.report(position, adviceOn(&c.response.Errors[0]))
		}
	})
}

func isRetry(entry forrst.ResponseExtension) bool {
	return forrst.ExtensionName(entry.URN) == forrst.Retry
}

// adviceOn goes by the code of a problem, and by the time that its details may name.
func adviceOn(problem *forrst.Error) retryAdvice {
	advice := retryAdvices[problem.Code]
	if after := toldRetryTime(problem); after != nil && advice.Allowed {
		advice.After = after
	}
	return advice
}
