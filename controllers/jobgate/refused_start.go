package jobgate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/jobs"
)

// refusedStartBackoff is how long a Job whose start was refused leaves the lock to others
// before its start is tried again.
const refusedStartBackoff = 30 * time.Second

// refusalOf returns the message with which the API server refused a write, or "" if the same
// write may succeed a moment later.
func refusalOf(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	switch status.Status().Code {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return status.Status().Message
	default:
		return ""
	}
}

// handleRefusedStart lets the next Job of the key start when this one cannot. An invalid Job
// fails, and so does one that does not wait; what is forbidden now may be allowed
// later, under another policy or quota.
func (p *pass) handleRefusedStart(ctx context.Context, holder *jobInfo, start error) error {
	refusal := refusalOf(start)
	logf.FromContext(ctx).Info("The start of a Job was refused", "job", klog.KObj(holder.job), "reason", apierrors.ReasonForError(start))
	// The template of a Job whose last pods are still counted is immutable for a moment.
	isInvalid := apierrors.IsInvalid(start) && holder.job.Status.Active == 0
	var failed error
	if isInvalid || holder.lockOptions.Policy != jobs.PolicyWait {
		failed = p.setFinishedCondition(ctx, holder, jobs.StartRefused, audit.Bounded("The Job cannot be started: "+refusal))
		if failed == nil {
			// If the Job has changed since, the cache will show it.
			return p.releaseEnded(ctx, holder)
		}
	}
	p.state.backoffUntil[holder.job.UID] = p.now.Add(refusedStartBackoff)
	p.emit(holder.job, corev1.EventTypeWarning, jobs.StartRefused.Reason, "Start",
		fmt.Sprintf("Leaves the lock to others for %s, since the Job cannot be started: %s", refusedStartBackoff, refusal))
	return errors.Join(failed, p.releaseUnstarted(ctx, holder))
}

// releaseEnded releases the lock of a Job that was ended before it was started.
func (p *pass) releaseEnded(ctx context.Context, holder *jobInfo) error {
	if !p.state.withoutPods[holder.job.UID] {
		return nil
	}
	return p.release(ctx)
}

// isBackedOff reports whether the Job leaves the lock to others because its start was
// refused.
func (p *pass) isBackedOff(candidate *jobInfo) bool {
	until, ok := p.state.backoffUntil[candidate.job.UID]
	if !ok {
		return false
	}
	if left := until.Sub(p.now); left > 0 {
		p.requeueAfter(left)
		return true
	}
	delete(p.state.backoffUntil, candidate.job.UID)
	return false
}
