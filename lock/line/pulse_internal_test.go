package line

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// A stream is silent when this replica has waited for its messages, and not while it did not run itself.
func TestATimeInWhichThisReplicaDidNotRunIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timers := clocktesting.NewFakeClock(time.Now())
		pulse, silent := newPulse(timers), make(chan error, 1)
		go func() { silent <- pulse.watch(t.Context(), nil) }()
		synctest.Wait()
		pass := func(time time.Duration) bool {
			timers.Step(time)
			synctest.Wait()
			return len(silent) > 0
		}
		if pass(time.Minute) {
			t.Error("the stream ends after a minute in which nothing ran")
		}
		pulse.beat()
		for passed := pingPeriod; passed <= maxSilence; passed += pingPeriod {
			if pass(pingPeriod) {
				t.Fatalf("the stream ends %v after a message", passed)
			}
		}
		if !pass(pingPeriod) {
			t.Fatal("the stream does not end")
		}
		if err := <-silent; !errors.Is(err, errSilent) {
			t.Error(err)
		}
	})
}
