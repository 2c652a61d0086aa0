package forrst_test

import (
	"testing"

	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// What a call costs the API server is known once it is read, and what cannot be read costs as much as an acquire.
func TestWhatACallCostsHasARate(t *testing.T) {
	for title, refused := range map[string]string{
		"the extension":       envelopeWith(ping, "", locked(`{"key":"d","scope":"global",`+ttl+`}`)),
		"an unknown function": envelopeWith("unknown", "", ""),
		"no call":             `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"a-1"}`,
	} {
		t.Run(title, func(t *testing.T) {
			f := newFixtureWith(t, func(config *testfacade.Settings) {
				config.Server.Limits, config.Server.Clock = limits.Limits{RatePerCaller: 1}, config.Clock
			})
			for range 2 {
				f.post(envelopeWith(wire.List, "", ""))
			}
			f.locks.Calls()
			got := f.post(refused)
			f.wantProblems(got, 429, "RATE_LIMITED")
			if details := string(got.Errors[0].Details); details != `{"retry_after":{"value":1,"unit":"second"}}` || got.header.Get("Retry-After") != "1" {
				t.Errorf("details %s, headers %v", details, got.header)
			}
			if calls := f.locks.Calls(); len(calls) > 0 {
				t.Errorf("a refused call asked for %+v", calls)
			}
			if got := f.post(envelopeWith(ping, "", "")); got.status != 200 {
				t.Errorf("a ping: %s", got.body)
			}
		})
	}
}
