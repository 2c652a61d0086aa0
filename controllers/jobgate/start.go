package jobgate

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/jobs"
)

// maxLostStarts is how often a start may be lost against the Job controller, which adds the condition Suspended again
// about a second after it was removed. Where admission of Jobs takes longer than that, the Job starts with the condition:
// a Job that Argo CD shows as finished is better than one that never starts.
const maxLostStarts = 3

// start starts the Job with the fencing token of its grant. One write of the spec starts it; where
// the Job controller has noted that the Job is suspended, a write of the status comes first.
func (p *pass) start(ctx context.Context, holder *jobInfo) error {
	held := p.state.grant
	token, err := held.lock.FencingToken()
	if err != nil {
		return err
	}
	// A write that arrives after the lock has expired would start the Job without it.
	left := held.lock.Spec.ExpireTime.Sub(p.Clock.Now())
	ctx, cancel := context.WithTimeout(held.trace.Within(ctx), min(writeTimeout, left/2))
	defer cancel()
	delete(p.state.syncRequests, holder.job.UID) // It belongs to the previous run, if any.
	starting, isWritten := holder, false
	if p.state.lostStarts[holder.job.UID] < maxLostStarts {
		starting, err = p.removeSuspendedCondition(ctx, holder)
	}
	if err == nil && starting != nil {
		isWritten, err = p.change(ctx, starting, func(job *batchv1.Job) {
			job.Spec.Suspend = new(false)
			delete(job.Annotations, v1alpha1.LockWaitingAnnotation)
			metav1.SetMetaDataAnnotation(&job.Spec.Template.ObjectMeta, v1alpha1.FencingTokenAnnotation, strconv.FormatInt(token, 10))
		})
	}
	if refusalOf(err) != "" {
		return p.handleRefusedStart(ctx, cmp.Or(starting, holder), err)
	}
	if err == nil && !isWritten && starting != nil && starting != holder {
		p.state.lostStarts[holder.job.UID]++
	}
	if err != nil || !isWritten {
		return err
	}
	delete(p.state.lostStarts, holder.job.UID)
	held.trace.Started(token)
	holder.reportedAt, holder.isAnnotated = time.Time{}, false // The Job may have to wait again.
	p.emit(holder.job, corev1.EventTypeNormal, "LockAcquired", "Start",
		fmt.Sprintf("Holds %s and is started, with the fencing token %d", holder.lockOptions.FullKey(), token))
	if jobs.HasSuspendedCondition(starting.job) {
		p.emit(holder.job, corev1.EventTypeWarning, "LockSuspendedKept", "Start", fmt.Sprintf(
			"Is started with the condition Suspended, since the Job controller has added it again before each of %d starts: "+
				"Argo CD takes the Job for complete while it runs, unless it has the health check of config/argocd", maxLostStarts))
	}
	return nil
}

// removeSuspendedCondition removes the condition Suspended from a Job that is about to start, and
// returns the Job as written; nil if the Job was newer than in the cache.
//
// A started Job never gets the condition back: the Job controller writes a status only to the
// version that it was computed from. If it adds the condition again before the start, the start
// finds a newer version and is repeated from here; after the start, it sees a Job that is not
// suspended, to which it adds none.
func (p *pass) removeSuspendedCondition(ctx context.Context, holder *jobInfo) (starting *jobInfo, err error) {
	changed := holder.job.DeepCopy()
	if !jobs.RemoveSuspendedCondition(changed) {
		return holder, nil
	}
	isWritten, err := p.write(ctx, holder, changed, p.sendStatus)
	if err != nil || !isWritten {
		return nil, err
	}
	return &jobInfo{job: changed, lockOptions: holder.lockOptions, phase: holder.phase}, nil
}
