package forrst_test

import (
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/test/support/testfacade"
)

// A caller who goes away leaves its function running, and must not get room for another
// one by that.
func TestAbandonedFunctionsCountAgainstTheLimits(t *testing.T) {
	for name, test := range map[string]struct {
		extensions string
		abandon    func(*bubble)
		status     int
	}{
		"the caller goes away": {"", func(b *bubble) { b.leave() }, 499},
		"the deadline passes":  {`,{"urn":"urn:forrst:ext:deadline","options":{"value":1,"unit":"second"}}`, func(*bubble) {}, 504},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, &works{takes: 40 * time.Second}, func(config *testfacade.Settings) {
					config.Server.Limits.RunningPerCaller = 1
				})
				answers := b.call(lockFor("6") + test.extensions)
				after(time.Second)
				test.abandon(b)
				if got := <-answers; got.status != test.status {
					t.Error(got.body)
				}
				b.wantProblems(b.post(envelopeWith(ping, "", "")), 429, "RATE_LIMITED")
				after(38 * time.Second)
				b.wantProblems(b.post(envelopeWith(ping, "", "")), 429, "RATE_LIMITED")
				after(time.Second)
				if got := b.post(envelopeWith(ping, "", "")); got.status != 200 {
					t.Error(got.body)
				}
				b.wantHeld()
			})
		})
	}
}
