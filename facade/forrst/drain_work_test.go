package forrst_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/lock/locktest"
)

func TestReleasesThatRunWhenTheDrainTimeoutHasPassedAreFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &works{takes: 10 * time.Second})
		b.before[locktest.Release] = func(ctx context.Context) error {
			select {
			case <-time.After(3 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		answers := b.call(lockFor("6"))
		after(5 * time.Second)
		b.leave()
		<-answers
		after(6 * time.Second) // The function is over and the release under way.
		b.wantDrained(0, 2*time.Second)
		b.wantHeld()
	})
}

// A renewal that hangs must not keep the lock from being left for the rest of the timeout.
func TestRenewalsThatHangWhenTheDrainTimeoutHasPassedAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, &works{takes: 50 * time.Second})
		hangs := true
		b.before[locktest.Renew] = func(ctx context.Context) error {
			if !hangs {
				return nil
			}
			hangs = false
			<-ctx.Done()
			return ctx.Err()
		}
		answers := b.call(lockFor("30"))
		after(5 * time.Second)
		b.leave()
		<-answers
		after(6 * time.Second) // The first renewal is under way.
		b.wantDrained(0, 0)
		held, err := b.locks.Get(t.Context(), namespace, theLock)
		if err != nil {
			t.Fatal(err)
		}
		if left := time.Until(held.Spec.ExpireTime.Time); left < 49*time.Second || left > 50*time.Second {
			t.Errorf("the lock is left for %s", left)
		}
	})
}

// A service that was not reached cannot be at work.
func TestCallsThatWereNotSentWhenTheDrainTimeoutHasPassedAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixtureWith(t, routingTo(t, "http://service", time.Minute, unconnected{}))
		b := &bubble{fixture: f}
		b.ctx, b.leave = context.WithCancel(t.Context())
		answers := b.call(lockFor("30"))
		after(5 * time.Second)
		b.leave()
		<-answers
		b.wantHeld(theLock)
		b.wantDrained(0, 0)
		b.wantHeld()
	})
}

// wantDrained expects that a handler stops which has so much time left.
func (b *bubble) wantDrained(timeout, want time.Duration) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), timeout)
	defer cancel()
	begun := time.Now()
	b.Drain(ctx)
	if took := time.Since(begun); took != want {
		b.t.Errorf("drained after %s, want %s", took, want)
	}
}
