package jobgate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/refusal"
	"forrst.dev/lock-operator/lock/rules"
)

// podsPeriod is the interval between lists of the pods that have yet to end. Only pods of Jobs
// that were suspended, were deleted or lost the lock are listed.
const podsPeriod = time.Second

// ensurePodsTerminated follows a Job that was suspended or deleted, is complete or has failed, and
// reports whether its last pod has ended. The lock must not be released before.
func (p *pass) ensurePodsTerminated(ctx context.Context, stopping *jobInfo) (hasEnded bool, err error) {
	job := stopping.job
	if p.state.withoutPods[job.UID] || jobs.OnlyPodSucceeded(job) {
		return true, nil
	}
	if stopping.phase == jobs.Stopping {
		requested, isRequested := p.state.syncRequests[job.UID]
		if !isRequested {
			return false, p.requestStatusSync(ctx, stopping)
		}
		if !isSynced(job, requested) {
			return false, p.deletePodsEarly(ctx, job)
		}
	}
	if p.now.Sub(p.state.podsListedAt[job.UID]) < podsPeriod/2 {
		p.requeueAfter(podsPeriod)
		return false, nil
	}
	p.state.podsListedAt[job.UID] = p.now
	pods, err := p.livePods(ctx, job)
	switch {
	case err != nil:
		return false, err
	case len(pods) > 0:
		p.requeueAfter(podsPeriod)
		p.reportForeignPod(stopping, pods)
		return false, p.deletePods(ctx, job, pods)
	}
	if stopping.phase == jobs.Ended {
		p.state.withoutPods[job.UID] = true
	}
	return true, nil
}

// reportForeignPod names a pod that keeps the lock and that the Job does not control, once in an
// event on the Job: it has the label of the Job's pods by the hand of a user, or its owner was taken
// away. A user who looks at the Job would not find it.
func (p *pass) reportForeignPod(stopping *jobInfo, pods []metav1.PartialObjectMetadata) {
	job := stopping.job
	for index := range pods {
		pod := &pods[index]
		if metav1.IsControlledBy(pod, job) {
			continue
		}
		if p.state.reportedPods[job.UID] != pod.UID {
			p.state.reportedPods[job.UID] = pod.UID
			p.emit(job, corev1.EventTypeWarning, "LockKept", "Release", fmt.Sprintf(
				"Keeps %s until the Pod %s has ended, which has the label %s of this Job and is not controlled by it",
				stopping.lockOptions.FullKey(), pod.Name, batchv1.ControllerUidLabel))
		}
		return
	}
}

// requestStatusSync clears a field of the Job's status that only the Job controller sets. The
// Job controller writes a status only if it has seen the latest version of the Job. Once
// the field is set again, it therefore knows that the Job is suspended or deleted, and the
// pods that it was about to create exist.
func (p *pass) requestStatusSync(ctx context.Context, stopping *jobInfo) error {
	changed := stopping.job.DeepCopy()
	changed.Status.Ready = nil
	isWritten, err := p.write(ctx, stopping, changed, p.sendStatus)
	if isWritten {
		p.state.syncRequests[changed.UID] = changed.ResourceVersion
		p.requeueAfter(podsPeriod)
	}
	return err
}

func isSynced(job *batchv1.Job, requested string) bool {
	return job.Status.Ready != nil && rules.IsNewer(job.ResourceVersion, requested)
}

// ensureStartTime sets the start time of a Job that has its outcome: without one, the Job
// controller cannot finish it. Since Kubernetes 1.36 the Job controller clears the start
// time of a suspended Job, and so do [pass.requeueStopped] and older versions of this operator,
// perhaps just before the Job controller learns that the Job has succeeded or failed.
func (p *pass) ensureStartTime(ctx context.Context, decided *jobInfo) error {
	if decided.job.Status.StartTime != nil {
		return nil // The cache shows the end.
	}
	changed := decided.job.DeepCopy()
	jobs.EnsureStartTime(changed)
	_, err := p.write(ctx, decided, changed, p.sendStatus)
	return err
}

// ownsPods reports whether the pods of the Job must be deleted: it was deleted, and not with
// its pods orphaned.
func ownsPods(job *batchv1.Job) bool {
	return !job.DeletionTimestamp.IsZero() && !slices.Contains(job.Finalizers, metav1.FinalizerOrphanDependents)
}

// livePods returns pods of the Job that have not ended: all if they must be deleted, otherwise
// at most one.
func (p *pass) livePods(ctx context.Context, job *batchv1.Job) ([]metav1.PartialObjectMetadata, error) {
	limit := int64(1)
	if ownsPods(job) {
		limit = 0
	}
	return jobs.ListLive(ctx, p.LiveReader, job.Namespace, job.UID, limit)
}

// deletePodsEarly deletes the existing pods while the Job controller may still create more.
func (p *pass) deletePodsEarly(ctx context.Context, job *batchv1.Job) error {
	if !ownsPods(job) {
		return nil
	}
	p.requeueAfter(podsPeriod)
	pods, err := p.livePods(ctx, job)
	return errors.Join(err, p.deletePods(ctx, job, pods))
}

// deletePods deletes the pods of a Job that was deleted, as the garbage collector would if
// the finalizer did not keep the Job. Orphaned pods stay, and so do those without a fencing token,
// which the operator may not delete: the Job was started while the webhook was away.
func (p *pass) deletePods(ctx context.Context, job *batchv1.Job, pods []metav1.PartialObjectMetadata) error {
	if !ownsPods(job) {
		return nil
	}
	var errs []error
	for i := range pods {
		pod := &pods[i]
		_, isOurs := pod.Annotations[v1alpha1.FencingTokenAnnotation]
		if !isOurs || !pod.DeletionTimestamp.IsZero() || !metav1.IsControlledBy(pod, job) {
			continue
		}
		err := p.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})
		if err != nil && !refusal.IsNotFound(err) && !refusal.IsConflict(err) {
			errs = append(errs, fmt.Errorf("delete a pod of the Job %s: %w", job.Name, err))
		}
	}
	return errors.Join(errs...)
}

// suspendWithoutLock suspends a Job that runs without holding the lock.
func (p *pass) suspendWithoutLock(ctx context.Context, candidate *jobInfo) error {
	// The cache of Locks may be behind that of Jobs.
	current, err := p.liveLock(ctx, candidate)
	if err != nil || current != nil && p.IsForJob(current) {
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
	if current != nil {
		// Any user may name the Job in the holderRef of a lock, so the holder alone proves
		// that the operator took it.
		logf.FromContext(ctx).Error(nil, "Suspended a Job under a lock that has another holder than this operator; "+
			"if the operator was moved to another namespace or name, see docs/operations.md",
			"job", klog.KObj(candidate.job), "lock", klog.KObj(current), "holder", current.Spec.Holder, "operator", p.Holder)
	}
	loss := cmp.Or(p.state.losses[candidate.job.UID], "it expired during an outage, or its release was forced")
	delete(p.state.losses, candidate.job.UID)
	p.emit(candidate.job, corev1.EventTypeWarning, "LockLost", "Suspend", fmt.Sprintf(
		"Does not hold %s any more: %s. The Job is suspended, and waits for the lock again when its pods have ended", candidate.lockOptions.FullKey(), loss))
	return nil
}

// liveLock returns the lock, by a live read, if its holderRef names the Job, and otherwise nil.
func (p *pass) liveLock(ctx context.Context, candidate *jobInfo) (*v1alpha1.Lock, error) {
	current, err := p.Engine.Get(ctx, p.name.Namespace, candidate.lockOptions.FullKey())
	switch {
	case isEnded(err):
		return nil, nil // no such lock
	case err != nil:
		return nil, fmt.Errorf("read the lock: %w", err)
	case current.Spec.HolderRef == nil || current.Spec.HolderRef.UID != candidate.job.UID:
		return nil, nil // no such lock
	}
	return current, nil
}

// requeueStopped ends the stop of a Job that has no pods left: the Job queues again or, if it was
// deleted, loses its finalizer. A Job in the phase Ended is left to [finalizerReconciler].
func (p *pass) requeueStopped(ctx context.Context, stopped *jobInfo) error {
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
func (p *pass) finishDeleted(ctx context.Context, stopped *jobInfo) error {
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
func (p *pass) clearStartTime(ctx context.Context, stopped *jobInfo) (withoutPods *jobInfo, err error) {
	if stopped.job.Status.StartTime == nil {
		return stopped, nil
	}
	changed := stopped.job.DeepCopy()
	changed.Status.StartTime = nil
	isWritten, err := p.write(ctx, stopped, changed, p.sendStatus)
	if err != nil || !isWritten {
		return nil, err
	}
	return &jobInfo{job: changed, lockOptions: stopped.lockOptions, phase: stopped.phase}, nil
}
