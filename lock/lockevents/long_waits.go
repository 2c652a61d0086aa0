package lockevents

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
)

const (
	// LongWait is how long callers wait for one holder until an Event says so.
	LongWait = 5 * time.Minute
	// longWaitsPeriod is how often that is looked for.
	longWaitsPeriod = 15 * time.Second
	// waitGap is for how long no caller may wait without ending the wait. A call of the façade lasts a minute
	// by default; then its client calls again.
	waitGap = time.Minute
	// reportEvery is the interval between reports about one grant: above the 6 minutes within which
	// client-go treats an Event as a repetition.
	reportEvery = 10 * time.Minute
)

// Waits tells which locks callers wait for.
type Waits interface {
	// WaitedFor calls each with every lock that another holder has and callers wait for, and how many do.
	// The locks must not be modified.
	WaitedFor(each func(lock *v1alpha1.Lock, callers int))
}

// LongWaits reports locks that callers have waited for longer than [LongWait] while one holder has them. It
// implements controller-runtime's manager.Runnable.
type LongWaits struct {
	// Waits are those of an engine. Required.
	Waits Waits
	// Reporter makes the Events. Required.
	Reporter *Reporter
	// Clock measures durations. Required.
	Clock clock.WithTicker

	// known are the waits that have not ended. Only the goroutine of Start uses it.
	known map[longWait]*progress
}

// longWait is a wait for one grant.
type longWait struct {
	uid types.UID
	// acquired is when the grant began, in microseconds.
	acquired int64
}

// progress is what is known of a wait.
type progress struct {
	// since is when it was seen first, last when it was seen last, and reported when an Event was made.
	since, last, reported time.Time
}

// Start looks for long waits until ctx ends.
func (l *LongWaits) Start(ctx context.Context) error {
	ticker := l.Clock.NewTicker(longWaitsPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			l.look()
		}
	}
}

// NeedLeaderElection is false: every replica knows its own callers.
func (l *LongWaits) NeedLeaderElection() bool { return false }

func (l *LongWaits) look() {
	now := l.Clock.Now()
	if l.known == nil {
		l.known = map[longWait]*progress{}
	}
	l.Waits.WaitedFor(func(lock *v1alpha1.Lock, callers int) {
		of := longWait{uid: lock.UID}
		if lock.Spec.AcquireTime != nil {
			of.acquired = lock.Spec.AcquireTime.UnixMicro()
		}
		wait := l.known[of]
		if wait == nil {
			wait = &progress{since: now}
			l.known[of] = wait
		}
		wait.last = now
		if now.Sub(wait.since) >= LongWait && now.Sub(wait.reported) >= reportEvery {
			wait.reported = now
			l.Reporter.waitingLong(lock, callers, now.Sub(wait.since))
		}
	})
	for of, wait := range l.known {
		if now.Sub(wait.last) > waitGap {
			delete(l.known, of)
		}
	}
}
