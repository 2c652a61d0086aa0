package jobgate

import (
	"context"
	"fmt"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/jobs"
)

// writeTimeout bounds one write of a Job.
const writeTimeout = 5 * time.Second

// start starts the Job with the fencing token of its grant, in one write.
func (p *pass) start(ctx context.Context, holder *candidate) error {
	held := p.state.grant
	token, err := held.lock.FencingToken()
	if err != nil {
		return err
	}
	// A write that arrives after the lock has expired would start the Job without it.
	left := held.lock.Spec.ExpireTime.Sub(p.Clock.Now())
	ctx, cancel := context.WithTimeout(ctx, min(writeTimeout, left/2))
	defer cancel()
	delete(p.state.syncRequests, holder.job.UID) // It belongs to the previous run, if any.
	isWritten, err := p.change(ctx, holder, func(job *batchv1.Job) {
		job.Spec.Suspend = new(false)
		delete(job.Annotations, v1alpha1.LockWaitingAnnotation)
		metav1.SetMetaDataAnnotation(&job.Spec.Template.ObjectMeta, v1alpha1.FencingTokenAnnotation, strconv.FormatInt(token, 10))
	})
	if refusalOf(err) != "" {
		return p.handleRefusedStart(ctx, holder, err)
	}
	if err != nil || !isWritten {
		return err
	}
	holder.reportedAt, holder.isAnnotated = time.Time{}, false // The Job may have to wait again.
	p.emit(holder.job, corev1.EventTypeNormal, "LockAcquired", "Start",
		fmt.Sprintf("Holds %s and is started, with the fencing token %d", holder.terms.FullKey(), token))
	return nil
}

// suspendWithoutLock suspends a Job that runs without holding the lock.
func (p *pass) suspendWithoutLock(ctx context.Context, candidate *candidate) error {
	// The cache of Locks may be behind that of Jobs.
	isHolder, err := p.isLiveHolder(ctx, candidate)
	if err != nil || isHolder {
		p.requeueAfter(podsPeriod)
		return err
	}
	isWritten, err := p.change(ctx, candidate, func(job *batchv1.Job) {
		job.Spec.Suspend = new(true)
		delete(job.Annotations, v1alpha1.LockWaitingAnnotation)
		metav1.SetMetaDataAnnotation(&job.ObjectMeta, v1alpha1.LockStoppingAnnotation, "true")
		if job.DeletionTimestamp.IsZero() {
			controllerutil.AddFinalizer(job, v1alpha1.LockFinalizer)
		}
	})
	if err != nil || !isWritten {
		return err
	}
	p.emit(candidate.job, corev1.EventTypeWarning, "LockLost", "Suspend",
		fmt.Sprintf("Does not hold %s any more: it expired during an outage, or its release was forced. The Job is suspended and waits for the lock again", candidate.terms.FullKey()))
	return nil
}

// isLiveHolder reports whether the Job holds the lock, by a live read.
func (p *pass) isLiveHolder(ctx context.Context, candidate *candidate) (bool, error) {
	current, err := p.Engine.Get(ctx, p.name.Namespace, candidate.terms.FullKey())
	switch {
	case isEnded(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read the lock: %w", err)
	}
	return p.IsForJob(current) && current.Spec.HolderRef.UID == candidate.job.UID, nil
}

// finishStop ends the stop of a Job that has no pods left: the Job queues again or, if it was
// deleted, loses its finalizer. A Job in the phase Ended is left to [finalizerReconciler].
func (p *pass) finishStop(ctx context.Context, stopped *candidate) error {
	if stopped.phase == jobs.Ended {
		return nil
	}
	if !stopped.job.DeletionTimestamp.IsZero() {
		return p.finishDeleted(ctx, stopped)
	}
	stopped, err := p.clearStartTime(ctx, stopped)
	if err != nil || stopped == nil {
		return err
	}
	isWritten, err := p.change(ctx, stopped, func(job *batchv1.Job) {
		delete(job.Spec.Template.Annotations, v1alpha1.FencingTokenAnnotation)
		delete(job.Annotations, v1alpha1.LockStoppingAnnotation)
		controllerutil.AddFinalizer(job, v1alpha1.LockFinalizer)
		metav1.SetMetaDataAnnotation(&job.ObjectMeta, v1alpha1.LockQueuedTimeAnnotation, jobs.FormatTime(p.now))
	})
	if isWritten {
		delete(p.state.syncRequests, stopped.job.UID)
	}
	return err
}

// finishDeleted removes the finalizer of a deleted Job. Another finalizer may keep the Job,
// which affects no other Job: the Job controller creates no pods of a deleted one.
func (p *pass) finishDeleted(ctx context.Context, stopped *candidate) error {
	p.state.withoutPods[stopped.job.UID] = true
	if !controllerutil.ContainsFinalizer(stopped.job, v1alpha1.LockFinalizer) {
		return nil
	}
	_, err := p.change(ctx, stopped, removeFinalizer)
	return err
}

// clearStartTime clears the start time of the Job, since the pod template may be changed only
// before the start, and returns the Job as written; nil if the Job was newer than in the
// cache.
func (p *pass) clearStartTime(ctx context.Context, stopped *candidate) (withoutPods *candidate, err error) {
	if stopped.job.Status.StartTime == nil {
		return stopped, nil
	}
	changed := stopped.job.DeepCopy()
	changed.Status.StartTime = nil
	isWritten, err := p.write(ctx, stopped, changed, p.sendStatus)
	if err != nil || !isWritten {
		return nil, err
	}
	return &candidate{job: changed, terms: stopped.terms, phase: stopped.phase}, nil
}

func removeFinalizer(job *batchv1.Job) { controllerutil.RemoveFinalizer(job, v1alpha1.LockFinalizer) }

// endUnstarted ends a Job that was not run because the lock has another holder.
func (p *pass) endUnstarted(ctx context.Context, candidate *candidate, outcome jobs.Outcome) error {
	return p.setOutcome(ctx, candidate, outcome, fmt.Sprintf("The Job was not run: %s", p.heldBy(candidate)))
}

// setOutcome sets the outcome of a Job that was not started.
func (p *pass) setOutcome(ctx context.Context, candidate *candidate, outcome jobs.Outcome, message string) error {
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

// change changes the spec or metadata of the Job, and reports whether the Job was still as in
// the cache, and thus written.
func (p *pass) change(ctx context.Context, candidate *candidate, change func(*batchv1.Job)) (isWritten bool, err error) {
	changed := candidate.job.DeepCopy()
	change(changed)
	return p.write(ctx, candidate, changed, p.sendJob)
}

// sender sends a patch of a Job or of its status.
type sender func(ctx context.Context, changed *batchv1.Job, patch client.Patch) error

func (p *pass) sendJob(ctx context.Context, changed *batchv1.Job, patch client.Patch) error {
	return p.Client.Patch(ctx, changed, patch)
}

func (p *pass) sendStatus(ctx context.Context, changed *batchv1.Job, patch client.Patch) error {
	return p.Client.Status().Patch(ctx, changed, patch)
}

// write writes a changed Job, and reports whether the Job was still as in the cache, and thus
// written.
func (p *pass) write(ctx context.Context, candidate *candidate, changed *batchv1.Job, send sender) (isWritten bool, err error) {
	// A patch with the resourceVersion, since this program may not know every field of the
	// pod template.
	err = send(ctx, changed, client.MergeFromWithOptions(candidate.job, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		// The cache is behind. Its next event causes another pass.
		return false, nil
	case err != nil:
		return false, fmt.Errorf("write the Job %s: %w", candidate.job.Name, err)
	}
	p.state.written[changed.UID] = changed.ResourceVersion
	candidate.isBehind = true
	return true, nil
}

// isCurrent reports whether the cached Job is the latest version.
func (p *pass) isCurrent(ctx context.Context, job *batchv1.Job) (bool, error) {
	var current batchv1.Job
	err := p.LiveReader.Get(ctx, client.ObjectKeyFromObject(job), &current)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return current.UID == job.UID && current.ResourceVersion == job.ResourceVersion, nil
}
