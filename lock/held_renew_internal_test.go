package lock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// The time of an attempt can run out before it is sent, in a stopped process. The next attempt
// must still be made.
func TestAnAutomaticRenewalThatWasNotSentIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := &Held{
			clock: clock.RealClock{}, isRenewed: true,
			done: make(chan struct{}), renewing: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		}
		held.calls, held.stopCalls = context.WithCancel(t.Context())
		held.prolong(time.Now(), 30*time.Second)
		held.renewing <- struct{}{} // keeps attempts from being sent
		for attempt := range 2 {
			<-time.After(max(0, time.Until(held.renewal.next)))
			held.step()
			held.mu.Lock()
			isMade := held.isRenewingItself
			held.mu.Unlock()
			if !isMade {
				t.Fatalf("attempt %d is not made", attempt+1)
			}
			if attempt == 0 {
				held.routines.Wait()
			}
		}
		held.stopCalls()
		held.routines.Wait()
	})
}
