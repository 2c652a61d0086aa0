package forrst

import (
	"net/http"
	"strconv"
	"time"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// maxRetryAfter is the longest that callers are told to wait; whoever asked for more has
// most likely erred.
const maxRetryAfter = 24 * time.Hour

// retryAfterOf returns the whole seconds after which to try again (section 4.3), or "" if
// the errors name no time and do not pass by themselves. Functions that run elsewhere name
// times of their own.
func retryAfterOf(problems envelope.Errors) string {
	for i := range problems {
		if after := retryTime(&problems[i]); after != nil {
			return strconv.FormatInt(int64((after.Length+time.Second-1)/time.Second), 10)
		}
	}
	return ""
}

func retryTime(problem *envelope.Error) *envelope.Duration {
	if after := toldRetryTime(problem); after != nil {
		return after
	}
	switch problem.Code.Status() {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return retryAdvices[problem.Code].After
	}
	return nil
}

// toldRetryTime is what the details tell: a duration or, as some services have it from the
// header, a number of seconds. It is nil if they tell no time, or one that is too long.
func toldRetryTime(problem *envelope.Error) *envelope.Duration {
	var ignored envelope.Errors
	details, _ := envelope.ReadObject(problem.Details, "", problem.Code, &ignored)
	limits := envelope.DurationLimits{Max: maxRetryAfter}
	if after := details.Duration("retry_after", limits); after != nil {
		return after
	}
	raw := details.Raw("retry_after")
	if raw == nil {
		return nil
	}
	seconds, _ := envelope.ReadObject(envelope.WithMember(nil, "value", raw), "", problem.Code, &ignored)
	return seconds.AsDuration(limits)
}
