package jobgate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/jobs"
)

// maxFinishesPerPass bounds how many Jobs a pass tries to finish. The next pass follows at once;
// other work that is due comes in between.
const maxFinishesPerPass = 20

// finishJob finishes a Job that was not run, or leaves it to a later pass if this one has tried
// enough Jobs or the lock must be renewed. A failed attempt is not repeated at once: it must not
// delay the others.
func (p *pass) finishJob(ctx context.Context, candidate *jobInfo, outcome jobs.Outcome) error {
	if wait := candidate.finishAgainAt.Sub(p.now); wait > 0 {
		p.requeueAfter(wait)
		return nil
	}
	if p.finishAttempts >= maxFinishesPerPass || p.isRenewalDue() {
		p.requeueAfter(0)
		return nil
	}
	p.finishAttempts++
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := p.finishUnstarted(ctx, candidate, outcome)
	if err != nil {
		candidate.finishAgainAt = p.now.Add(maxBackoff)
	}
	return err
}

// isRenewalDue reports whether the lock must be renewed now. It still must after a failed
// attempt.
func (p *pass) isRenewalDue() bool {
	return p.state.grant != nil && !p.Clock.Now().Before(p.state.grant.renewAt())
}

// finishUnstarted finishes a Job that was not run because the lock has another holder.
func (p *pass) finishUnstarted(ctx context.Context, candidate *jobInfo, outcome jobs.Outcome) error {
	return p.setFinishedCondition(ctx, candidate, outcome, fmt.Sprintf("The Job was not run: %s", p.heldBy(candidate)))
}

// setFinishedCondition writes the condition with the outcome into a Job that was not started.
func (p *pass) setFinishedCondition(ctx context.Context, candidate *jobInfo, outcome jobs.Outcome, message string) error {
	changed := candidate.job.DeepCopy()
	outcome.Decide(changed, message, metav1.NewTime(p.now))
	delete(changed.Annotations, v1alpha1.LockWaitingAnnotation) // Written together with the status.
	isWritten, err := p.write(ctx, candidate, changed, p.sendStatus)
	if err != nil || !isWritten {
		return err
	}
	p.state.withoutPods[candidate.job.UID] = true // It had not been started.
	kind := corev1.EventTypeWarning
	if outcome == jobs.Skipped {
		kind = corev1.EventTypeNormal
	}
	p.emit(candidate.job, kind, outcome.Reason, "End", message)
	return nil
}
