package facade_test

import (
	"context"
	"testing"

	"forrst.dev/lock-operator/facade/forrst"
)

func TestRetryAfterFollowsTheDetails(t *testing.T) {
	cases := map[string]struct {
		code    forrst.Code
		details string
		want    string
	}{
		"seconds":                    {forrst.RateLimited, `{"retry_after":{"value":7,"unit":"second"}}`, "7"},
		"minutes":                    {forrst.Unavailable, `{"retry_after":{"value":2,"unit":"minute"}}`, "120"},
		"part of a second":           {forrst.Unavailable, `{"retry_after":{"value":1,"unit":"millisecond"}}`, "1"},
		"a second and a bit":         {forrst.ServerMaintenance, `{"retry_after":{"value":1001,"unit":"millisecond"}}`, "2"},
		"a number of seconds":        {forrst.RateLimited, `{"retry_after":7}`, "7"},
		"a number in a string":       {forrst.RateLimited, `{"retry_after":"7"}`, "7"},
		"a number that is too large": {forrst.RateLimited, `{"retry_after":1e9}`, "60"},
		"no details":                 {forrst.Unavailable, "", "1"},
		"no details of a rate":       {forrst.RateLimited, "", "60"},
		"details without it":         {forrst.FunctionMaintenance, `{"reason":"x"}`, "60"},
		"nonsense":                   {forrst.Unavailable, `{"retry_after":"soon"}`, "1"},
		"any error that tells":       {forrst.InternalError, `{"retry_after":{"value":7,"unit":"second"}}`, "7"},
		"an error that does not":     {forrst.InternalError, "", ""},
		"too long":                   {forrst.Unavailable, `{"retry_after":{"value":25,"unit":"hour"}}`, "1"},
		"an error that does not end": {forrst.Conflict, "", ""},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, function("f", func(context.Context) (any, error) {
				return nil, &forrst.Error{Code: test.code, Details: []byte(test.details)}
			}))
			got := f.post(envelopeWith("f", "", ""))
			if header := got.header.Get("Retry-After"); header != test.want {
				t.Errorf("Retry-After %q, want %q", header, test.want)
			}
		})
	}
}
