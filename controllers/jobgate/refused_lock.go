package jobgate

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/jobs"
)

// maxRefusedBackoff bounds how long a Job that the cluster refuses the lock leaves it to others.
const maxRefusedBackoff = 10 * time.Minute

// backOffRefused lets the next Job of the key ask for the lock if the cluster refuses it to this one,
// by a quota or a policy: it may allow another ttl, and later this one. The Job asks again after
// as long as it has waited, since a namespace may have many such Jobs.
func (p *pass) backOffRefused(candidate *jobInfo, acquire error) {
	refused, ok := errors.AsType[*lock.RefusedError](acquire)
	if !ok {
		return
	}
	backoff := min(max(p.now.Sub(candidate.orderingKey.WaitsSince), refusedStartBackoff), maxRefusedBackoff).Truncate(time.Second)
	p.leaveToOthers(candidate.job, jobs.AcquireRefused, "Acquire", backoff, "the cluster refuses the lock: "+refused.Reason)
}

// leaveToOthers has a Job that was refused its lock or its start leave the lock to others for a while, and tells it why, by an
// event and, for as long as that holds, by its annotation.
func (p *pass) leaveToOthers(refused *batchv1.Job, outcome jobs.Outcome, action string, backoff time.Duration, why string) {
	refusal := jobs.Refusal{At: p.now, Until: p.now.Add(backoff), Why: why}
	p.state.refusals[refused.UID] = refusal
	if p.reports.TryAccept() {
		p.emit(refused, corev1.EventTypeWarning, outcome.Reason, action, fmt.Sprintf("Leaves the lock to others for %s, since %s", backoff, why))
		p.annotateAll([]annotation{{job: refused, text: audit.Bounded(refusal.String())}})
	}
}

// isBackedOff reports whether the Job leaves the lock to others because the lock or its start
// was refused.
func (p *pass) isBackedOff(candidate *jobInfo) bool {
	refusal, wasRefused := p.state.refusals[candidate.job.UID]
	if !wasRefused {
		return false
	}
	if left := refusal.Until.Sub(p.now); left > 0 {
		p.requeueAfter(left)
		return true
	}
	delete(p.state.refusals, candidate.job.UID)
	candidate.reportedAt, candidate.isAnnotated = time.Time{}, false // It waits again, and its annotation tells of the refusal.
	return false
}

// failRefused fails a Job that does not wait if the cluster refuses it the lock.
func (p *pass) failRefused(ctx context.Context, candidate *jobInfo, acquire error) error {
	refused, ok := errors.AsType[*lock.RefusedError](acquire)
	if !ok {
		return nil
	}
	return p.setFinishedCondition(ctx, candidate, jobs.AcquireRefused,
		audit.Bounded("The Job was not run, since the cluster refuses it the lock: "+refused.Reason))
}
