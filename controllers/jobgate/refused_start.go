package jobgate

import (
	"context"
	"errors"
	"net/http"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
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
	p.state.grant.trace.Failed(lock.ErrRefused)
	logf.FromContext(ctx).Info("The start of a Job was refused", "job", klog.KObj(holder.job), "reason", apierrors.ReasonForError(start))
	p.recordRefusal(holder.job, p.state.grant.lock, "start", reasonOf(start), refusal)
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
	released := p.releaseUnstarted(ctx, holder) // Before the Job is annotated: it must not have changed.
	p.leaveToOthers(holder.job, jobs.StartRefused, "Start", refusedStartBackoff, "the Job cannot be started: "+refusal)
	return errors.Join(failed, released)
}

// recordRefusal records that a Job was refused what the operation is, with the lock that it wants or holds.
func (p *pass) recordRefusal(job *batchv1.Job, about *v1alpha1.Lock, operation string, reason audit.Reason, message string) {
	record := audit.Of(audit.Refused, audit.Controller, about)
	record.Time, record.Operation, record.Reason, record.Message = v1alpha1.NewTimestamp(p.now), operation, reason, audit.Bounded(message)
	record.Object = &audit.Object{Group: batchv1.GroupName, Resource: "jobs", Name: job.Name}
	audit.OrNowhere(p.Audit).Record(record)
}

// recordRefusedLock records that the cluster refuses the lock that a Job asks for, such as by a quota. Other
// errors are no refusals.
func (p *pass) recordRefusedLock(candidate *jobInfo, err error) {
	if refused, ok := errors.AsType[*lock.RefusedError](err); ok {
		options := candidate.lockOptions
		about := &v1alpha1.Lock{Spec: v1alpha1.LockSpec{Key: options.Key, Scope: options.Scope, Function: options.Function}}
		about.Namespace, about.Name = p.name.Namespace, p.name.Name
		p.recordRefusal(candidate.job, about, "acquire", audit.Forbidden, refused.Reason)
	}
}

func reasonOf(err error) audit.Reason {
	if apierrors.IsForbidden(err) {
		return audit.Forbidden
	}
	return audit.Invalid
}

// releaseEnded releases the lock of a Job that was ended before it was started.
func (p *pass) releaseEnded(ctx context.Context, holder *jobInfo) error {
	if !p.state.withoutPods[holder.job.UID] {
		return nil
	}
	return p.release(ctx)
}
