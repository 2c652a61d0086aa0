package engine

import (
	"context"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

// maxClockChecks is how many reads checkedNow makes at most. One is enough unless the clock is
// stepped during the read; none helps if the answers carry no date.
const maxClockChecks = 3

// stampNow is checkedNow for a write that admission judges and stamps again by its own clock, if this
// engine's writes are admitted: then a stale clock does no harm, and no read is made.
func (e *Engine) stampNow(ctx context.Context, objects Objects, name string) (servertime.Reading, error) {
	if e.isAdmitted {
		return servertime.Read(e.clock), nil
	}
	return e.checkedNow(ctx, objects, name)
}

// checkedNow returns the time for a decision that takes a lock from its holder or extends it. If
// the clock is not fresh, it makes a read first: every answer of the API server corrects the
// clock.
func (e *Engine) checkedNow(ctx context.Context, objects Objects, name string) (servertime.Reading, error) {
	for range maxClockChecks {
		// Read the time before the check: a step of the clock before the read makes the clock not
		// fresh, and one after it does not affect now.
		now := servertime.Read(e.clock)
		if servertime.IsFresh(e.clock) {
			return now, nil
		}
		if _, err := get(ctx, objects, name); err != nil {
			return servertime.Reading{}, err
		}
	}
	return servertime.Read(e.clock), nil
}

// graceNow returns how long after its expireTime a lock is left alone at present. The allowance
// covers the clock that stamped the lock, the rest covers the clock of this engine.
func (e *Engine) graceNow() time.Duration { return e.allowance + servertime.MaxAhead(e.clock) }

// awaitReclaimable returns when others may end the lock, or when ctx has ended.
func (e *Engine) awaitReclaimable(ctx context.Context, expired *v1alpha1.Lock) {
	timer := e.clock.NewTimer(max(0, rules.UntilReclaimable(expired, e.clock.Now(), e.graceNow())))
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	}
}

// isMisstamped reports whether the answer to a write showed that the clock was wrong when it
// stamped the write, for the given reading, and maybe by more than the allowance covers. The stamps of admission are not this
// engine's.
func (e *Engine) isMisstamped(stamped servertime.Reading) bool {
	return !e.isAdmitted && servertime.MaxError(e.clock, stamped) > e.allowance
}
