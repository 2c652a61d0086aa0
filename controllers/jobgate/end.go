package jobgate

import (
	"context"

	"forrst.dev/lock-operator/lock/jobs"
)

// decisionsAtOnce is how many Jobs a pass tries to end. The next pass comes at once, so
// that whatever else is due meanwhile does not wait for long.
const maxEndsPerPass = 20

// end ends a Job that was not run, or leaves it to a later pass if this one has taken long
// enough. A Job that could not be ended is not tried again right away, so that such Jobs
// do not keep others from being ended.
func (p *pass) end(ctx context.Context, candidate *candidate, outcome jobs.Outcome) error {
	if wait := candidate.endAgainAt.Sub(p.now); wait > 0 {
		p.requeueAfter(wait)
		return nil
	}
	if p.ends >= maxEndsPerPass || p.isRenewalDue() {
		p.requeueAfter(0)
		return nil
	}
	p.ends++
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := p.endUnstarted(ctx, candidate, outcome)
	if err != nil {
		candidate.endAgainAt = p.now.Add(maxBackoff)
	}
	return err
}

// isRenewalDue reports whether the lock is to be renewed now. If the last attempt has
// failed, it still is.
func (p *pass) isRenewalDue() bool {
	return p.state.grant != nil && !p.Clock.Now().Before(p.state.grant.renewAt())
}
