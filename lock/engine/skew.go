package engine

import (
	"context"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/servertime"
)

// maxStampAge is how much a stamp may differ from the clock after the answer, beyond
// what a request may take, before the clock is taken to have been wrong.
const maxStampAge = time.Second

// maxClockChecks is how many reads are made to check the clock. One is enough unless
// the clock is stepped during the read; none is where the answers have no date.
const maxClockChecks = 3

// checkedNow returns the time for a decision that takes a lock from its holder or
// extends it. If the clock has not been compared with that of the API server lately, it
// makes a read first: every answer does that.
func (e *Engine) checkedNow(ctx context.Context, objects Objects, name string) (time.Time, error) {
	for range maxClockChecks {
		// The time comes first: if the clock is stepped after that, it is right, and if
		// before, the clock is not fresh.
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

// graceNow returns how long after its expireTime a lock is left alone at present: the
// allowance is for the clock that has stamped it, the rest for that of this engine.
func (e *Engine) graceNow() time.Duration { return e.allowance + servertime.MaxAhead(e.clock) }

// isMisstamped reports whether the clock was wrong when it stamped the grant, which
// its own answer has shown.
func (e *Engine) isMisstamped(granted *v1alpha1.Lock) bool {
	if e.isAdmitted || granted.Spec.AcquireTime == nil {
		return false
	}
	age := e.clock.Now().Sub(granted.Spec.AcquireTime.Time)
	return age < -maxStampAge || age > e.timeout+maxStampAge
}
