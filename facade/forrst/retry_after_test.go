package forrst_test

import (
	"context"
	"testing"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

func TestRetryAfterFollowsTheDetails(t *testing.T) {
	cases := map[string]struct {
		code    envelope.Code
		details string
		want    string
	}{
		"seconds":                    {envelope.RateLimited, `{"retry_after":{"value":7,"unit":"second"}}`, "7"},
		"minutes":                    {envelope.Unavailable, `{"retry_after":{"value":2,"unit":"minute"}}`, "120"},
		"part of a second":           {envelope.Unavailable, `{"retry_after":{"value":1,"unit":"millisecond"}}`, "1"},
		"a second and a bit":         {envelope.ServerMaintenance, `{"retry_after":{"value":1001,"unit":"millisecond"}}`, "2"},
		"a number of seconds":        {envelope.RateLimited, `{"retry_after":7}`, "7"},
		"a number in a string":       {envelope.RateLimited, `{"retry_after":"7"}`, "7"},
		"a number that is too large": {envelope.RateLimited, `{"retry_after":1e9}`, "60"},
		"no details":                 {envelope.Unavailable, "", "1"},
		"no details of a rate":       {envelope.RateLimited, "", "60"},
		"details without it":         {envelope.FunctionMaintenance, `{"reason":"x"}`, "60"},
		"nonsense":                   {envelope.Unavailable, `{"retry_after":"soon"}`, "1"},
		"any error that tells":       {envelope.InternalError, `{"retry_after":{"value":7,"unit":"second"}}`, "7"},
		"an error that does not":     {envelope.InternalError, "", ""},
		"too long":                   {envelope.Unavailable, `{"retry_after":{"value":25,"unit":"hour"}}`, "1"},
		"an error that does not end": {envelope.Conflict, "", ""},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, function("f", func(context.Context) (any, error) {
				return nil, &envelope.Error{Code: test.code, Details: []byte(test.details)}
			}))
			got := f.post(envelopeWith("f", "", ""))
			if header := got.header.Get("Retry-After"); header != test.want {
				t.Errorf("Retry-After %q, want %q", header, test.want)
			}
		})
	}
}
