package engine

import (
	"context"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

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
// stamped the write, for the given reading, and maybe by more than the allowance covers: the machine was paused, and its
// clock stood still. The stamps of admission are not this engine's.
func (e *Engine) isMisstamped(stamped servertime.Reading) bool {
	return !e.isAdmitted && servertime.MaxError(e.clock, stamped) > e.allowance
}
