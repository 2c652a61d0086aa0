package engine

import (
	"context"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/servertime"
)

// maxStampAge is how much a stamp may differ from the clock after the answer, beyond the duration
// of a request. A larger difference means that the clock was wrong.
const maxStampAge = time.Second

// maxClockChecks is how many reads checkedNow makes at most. One is enough unless the clock is
// stepped during the read; none helps if the answers carry no date.
const maxClockChecks = 3

// checkedNow returns the time for a decision that takes a lock from its holder or extends it. If
// the clock is not fresh, it makes a read first: every answer of the API server corrects the
// clock.
func (e *Engine) checkedNow(ctx context.Context, objects Objects, name string) (time.Time, error) {
	for range maxClockChecks {
		// Read the time before the check: a step of the clock before the read makes the clock not
		// fresh, and one after it does not affect now.
		now := e.clock.Now()
		if servertime.IsFresh(e.clock) {
			return now, nil
		}
		if _, err := get(ctx, objects, name); err != nil {
			return time.Time{}, err
		}
	}
	return e.clock.Now(), nil
}

// graceNow returns how long after its expireTime a lock is left alone at present. The allowance
// covers the clock that stamped the lock, the rest covers the clock of this engine.
func (e *Engine) graceNow() time.Duration { return e.allowance + servertime.MaxAhead(e.clock) }

// isMisstamped reports whether the answer to the grant showed that the clock was wrong when it
// stamped the grant.
func (e *Engine) isMisstamped(granted *v1alpha1.Lock) bool {
	if e.isAdmitted || granted.Spec.AcquireTime == nil {
		return false
	}
	age := e.clock.Now().Sub(granted.Spec.AcquireTime.Time)
	return age < -maxStampAge || age > e.timeout+maxStampAge
}
