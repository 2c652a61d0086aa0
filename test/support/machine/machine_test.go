package machine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/test/support/machine"
)

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := machine.NewClock()
		before := clock.Now()
		clock.Suspend(time.Hour)
		time.Sleep(time.Second) //nolint:forbidigo // advances the clock of the bubble
		after := clock.Now()
		if monotonic, wall := after.Sub(before), after.Round(0).Sub(before.Round(0)); monotonic != time.Second || wall != time.Hour+time.Second {
			t.Errorf("the monotonic clock went on by %s, the wall clock by %s", monotonic, wall)
		}
	})
}
