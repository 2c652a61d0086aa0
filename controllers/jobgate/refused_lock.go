package jobgate

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	p.state.backoffUntil[candidate.job.UID] = p.now.Add(backoff)
	if p.reports.TryAccept() {
		p.emit(candidate.job, corev1.EventTypeWarning, jobs.AcquireRefused.Reason, "Acquire",
			fmt.Sprintf("Leaves the lock to others for %s, since the cluster refuses it: %s", backoff, refused.Reason))
	}
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
