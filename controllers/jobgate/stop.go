package jobgate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/rules"
)

// podsPeriod is the interval between lists of the pods that have yet to end. Only pods of Jobs
// that were suspended, were deleted or lost the lock are listed.
const podsPeriod = time.Second

// stop follows a Job that was suspended or deleted, is complete or has failed, and reports
// whether its last pod has ended. The lock must not be released before.
func (p *pass) stop(ctx context.Context, stopping *candidate) (hasEnded bool, err error) {
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
		return false, p.deletePods(ctx, job, pods)
	}
	if stopping.phase == jobs.Ended {
		p.state.withoutPods[job.UID] = true
	}
	return true, nil
}

// requestStatusSync clears a field of the Job's status that only the Job controller sets. The
// Job controller writes a status only if it has seen the latest version of the Job. Once
// the field is set again, it therefore knows that the Job is suspended or deleted, and the
// pods that it was about to create exist.
func (p *pass) requestStatusSync(ctx context.Context, stopping *candidate) error {
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
// time of a suspended Job, and so do [pass.finishStop] and older versions of this operator,
// perhaps just before the Job controller learns that the Job has succeeded or failed.
func (p *pass) ensureStartTime(ctx context.Context, decided *candidate) error {
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
// the finalizer did not keep the Job. Orphaned pods stay.
func (p *pass) deletePods(ctx context.Context, job *batchv1.Job, pods []metav1.PartialObjectMetadata) error {
	if !ownsPods(job) {
		return nil
	}
	var errs []error
	for i := range pods {
		pod := &pods[i]
		if !pod.DeletionTimestamp.IsZero() || !metav1.IsControlledBy(pod, job) {
			continue
		}
		err := p.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("delete a pod of the Job %s: %w", job.Name, err))
		}
	}
	return errors.Join(errs...)
}
