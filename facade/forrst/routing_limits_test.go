package forrst_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/lock/locktest"
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
					config.Server.Limits.InFlight = limits.DefaultShares // One for each caller.
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

// The service is still being sent the request of a caller who has gone.
func TestAbandonedFunctionsKeepTheRoomOfTheirBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &works{takes: 40 * time.Second})
		answers := b.call(lockFor("6"))
		after(time.Second)
		taken := b.Limiter().BodyBytes()
		b.leave()
		<-answers
		after(time.Second)
		if left := b.Limiter().BodyBytes(); taken == 0 || left != taken {
			t.Errorf("%d bytes are counted, want %d", left, taken)
		}
		after(39 * time.Second)
		if left := b.Limiter().BodyBytes(); left != 0 {
			t.Errorf("%d bytes are still counted when nothing holds them", left)
		}
	})
}

// A lock with a short ttl is renewed many times a second, at the cost of its caller.
func TestRenewalsForRoutedFunctionsCountAgainstTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &works{takes: 10 * time.Second}, func(config *testfacade.Settings) {
			config.Server.Limits = limits.Limits{RatePerCaller: 2}
		})
		b.renewals.fail(errBroken) // Such a lock counts as held until its function is over.
		<-b.call(lockFor("0.06"))
		if renewals := len(b.renewals.attempts()); renewals < 8 || renewals > 8+4*10 {
			t.Errorf("%d renewals in ten seconds, at a rate of 4", renewals)
		}
	})
}

// A call counts no longer than it lasts, whatever becomes of the release of its lock.
func TestAPanicOfTheBackendKeepsNoCallInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &works{takes: time.Second})
		b.before[locktest.Release] = func(context.Context) error { panic("x") }
		if got := <-b.call(lockFor("6")); got.status != 500 {
			t.Errorf("status %d: %s", got.status, got.body)
		}
		if left := b.Limiter().Counts(); left != (limits.Counts{}) || b.Limiter().BodyBytes() != 0 {
			t.Errorf("%+v and %d bytes are still counted", left, b.Limiter().BodyBytes())
		}
	})
}
