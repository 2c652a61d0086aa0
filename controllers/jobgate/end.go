package jobgate

import (
	"context"

	"forrst.dev/lock-operator/lock/jobs"
)

// maxEndsPerPass bounds how many Jobs a pass tries to end. The next pass follows at once;
// other work that is due comes in between.
const maxEndsPerPass = 20

// end ends a Job that was not run, or leaves it to a later pass if this one has ended enough
// Jobs or the lock must be renewed. A failed attempt is not repeated at once: it must not
// delay the end of other Jobs.
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

// isRenewalDue reports whether the lock must be renewed now. It still must after a failed
// attempt.
func (p *pass) isRenewalDue() bool {
	return p.state.grant != nil && !p.Clock.Now().Before(p.state.grant.renewAt())
}
