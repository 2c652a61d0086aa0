package rules

import (
	"errors"
	"strings"
	"testing"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// TestLimitsBoundAFixedExpireTime shows how far ahead a fixed time may lie, and that a holder may end
// its lock sooner whatever the limit is.
func TestLimitsBoundAFixedExpireTime(t *testing.T) {
	const hour = 3600
	fixed := func(seconds float64) func(*v1alpha1.Lock) {
		return func(l *v1alpha1.Lock) { l.Spec.TTL, l.Spec.ExpireTime = nil, at(seconds) }
	}
	cases := map[string]struct {
		max time.Duration
		// held is the end of the lock that is changed, or zero to create one.
		held, expire float64
		want         string
	}{
		"a new lock within the limit":                   {max: 2 * time.Hour, expire: 2 * hour},
		"a new lock beyond the limit":                   {max: 2 * time.Hour, expire: 2*hour + 1, want: "must be in the future and at most 2h0m0s ahead"},
		"a new lock beyond a limit of days":             {max: 48 * time.Hour, expire: 49 * hour, want: "must be in the future and at most 2 days ahead"},
		"a new lock where none may have a fixed time":   {max: 0, expire: hour, want: "grant no fixed time; set ttl instead"},
		"a later end within the limit":                  {max: 2 * time.Hour, held: hour, expire: 2 * hour},
		"a later end beyond the limit":                  {max: 2 * time.Hour, held: hour, expire: 3 * hour, want: "at most 2h0m0s ahead"},
		"a later end where none may have a fixed time":  {max: 0, held: 2 * hour, expire: 3 * hour, want: "set ttl instead"},
		"a sooner end beyond the limit":                 {max: time.Hour, held: 4 * hour, expire: 3 * hour},
		"a sooner end where none may have a fixed time": {max: 0, held: 2 * hour, expire: hour},
		"an end in the past is not a sooner one":        {max: time.Hour, held: 2 * hour, expire: -1, want: "must be in the future"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			limits := DefaultLimits()
			limits.MaxExpireAhead = test.max
			var err error
			if test.held == 0 {
				_, _, err = AdmitCreate(manifest(fixed(test.expire)), User{Name: "alice"}, limits, noon)
			} else {
				old := stored()
				fixed(test.held)(old)
				updated := old.DeepCopy()
				fixed(test.expire)(updated)
				_, _, err = AdmitUpdate(change(t, old, updated, "alice"), limits, noon, time.Second)
			}
			switch {
			case test.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.want != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "spec.expireTime") || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
