package forrst

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// retryAdvice is the data of the retry extension (docs/forrst.md, section 10.5).
type retryAdvice struct {
	Allowed     bool               `json:"allowed"`
	Strategy    string             `json:"strategy,omitempty"`
	After       *envelope.Duration `json:"after,omitempty"`
	MaxAttempts int                `json:"max_attempts,omitempty"`
}

func retry(strategy string, after time.Duration, maxAttempts int) retryAdvice {
	advice := retryAdvice{Allowed: true, Strategy: strategy, MaxAttempts: maxAttempts}
	if after > 0 {
		advice.After = new(envelope.NewDuration(after))
	}
	return advice
}

// retryAdvices are what to do about errors that may not come again. About others there is nothing to be done.
var retryAdvices = map[envelope.Code]retryAdvice{
	envelope.RateLimited:           retry("fixed", time.Minute, 3),
	envelope.Unavailable:           retry("exponential", time.Second, 5),
	envelope.DeadlineExceeded:      retry("immediate", 0, 1),
	envelope.InternalError:         retry("exponential", time.Second, 3),
	envelope.DependencyError:       retry("exponential", 2*time.Second, 3),
	envelope.IdempotencyProcessing: retry("fixed", time.Second, 3),
	envelope.ServerMaintenance:     retry("fixed", time.Minute, 1),
	envelope.FunctionMaintenance:   retry("fixed", time.Minute, 1),
	envelope.FunctionDisabled:      retry("fixed", 30*time.Second, 2),
	envelope.LockAcquisitionFailed: retry("exponential", time.Second, 3),
	envelope.LockTimeout:           retry("exponential", time.Second, 3),
}

// addRetryAdvice makes a failure tell whether to try again, if the caller wants to know. It goes by the code of the first
// error, and by the time that its details may name. A function that was routed may have told already.
func (c *call) addRetryAdvice() {
	position := c.position(envelope.Retry)
	if position < 0 {
		return
	}
	isRetry := func(entry envelope.ResponseExtension) bool {
		return envelope.ExtensionName(entry.URN) == envelope.Retry
	}
	c.decorate = append(c.decorate, func() {
		if len(c.response.Errors) == 0 || slices.ContainsFunc(c.response.Extensions, isRetry) {
			return
		}
		first := &c.response.Errors[0]
		advice := retryAdvices[first.Code]
		if after := retryAfterFromDetails(first); after != nil && advice.Allowed {
			advice.After = after
		}
		c.report(position, advice)
	})
}

// maxRetryAfter is the longest that callers are told to wait; a service that asks for more has most likely erred.
const maxRetryAfter = 24 * time.Hour

// retryAfterOf returns the whole seconds after which to try again (docs/forrst.md, section 4.3), or "" if the errors name no
// time and do not pass by themselves. Functions that run elsewhere name times of their own.
func retryAfterOf(problems envelope.Errors) string {
	for i := range problems {
		after := retryAfterFromDetails(&problems[i])
		if status := problems[i].Code.Status(); after == nil && (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable) {
			after = retryAdvices[problems[i].Code].After
		}
		if after != nil {
			return strconv.FormatInt(int64((after.Length+time.Second-1)/time.Second), 10)
		}
	}
	return ""
}

// retryAfterFromDetails returns the time in the details of a problem: a duration or, as some services copy it from the
// header, a number of seconds. It is nil if they name no time, or one that is too long.
func retryAfterFromDetails(problem *envelope.Error) *envelope.Duration {
	var ignored envelope.Errors
	details, _ := envelope.ReadObject(problem.Details, "", &ignored)
	limits := envelope.DurationLimits{Max: maxRetryAfter}
	raw := details.Raw("retry_after")
	if after := details.Duration("retry_after", limits); after != nil || raw == nil {
		return after
	}
	seconds, _ := envelope.ReadObject(envelope.WithMember(nil, "value", raw), "", &ignored)
	return seconds.AsDuration(limits)
}
