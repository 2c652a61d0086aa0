package jobgate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/lock/jobs"
)

// lookAgainForPods is how often pods are listed that have yet to end. Only those of Jobs
// that were suspended, deleted or stripped of their lock are.
const lookAgainForPods = time.Second

// stop sees a Job through that was suspended, deleted or decided, and reports when its
// last pod has ended. The lock must not be released before.
func (p *pass) stop(ctx context.Context, stopping *candidate) (hasEnded bool, err error) {
	job := stopping.job
	if stopping.phase == jobs.Stopping {
		fence, isFenced := p.slot.fences[job.UID]
		if !isFenced {
			return false, p.fence(ctx, stopping)
		}
		if !isAnswered(job, fence) {
			// Nobody else deletes them, since the finalizer keeps the Job.
			return false, p.deletePods(ctx, job)
		}
	}
	if p.now.Sub(p.slot.lookedAt[job.UID]) < lookAgainForPods/2 {
		p.comeBackIn(lookAgainForPods)
		return false, nil
	}
	p.slot.lookedAt[job.UID] = p.now
	hasEnded, err = p.haveEnded(ctx, job.UID)
	if err != nil || hasEnded {
		return hasEnded, err
	}
	p.comeBackIn(lookAgainForPods)
	return false, p.deletePods(ctx, job)
}

// fence clears a field of the Job's status that only the Job controller sets. That one
// writes a status only if it has seen the Job as it was until then; so when the field is
// set again, it knows that the Job is suspended or deleted, and whatever pods it was about
// to create exist.
func (p *pass) fence(ctx context.Context, stopping *candidate) error {
	changed := stopping.job.DeepCopy()
	changed.Status.Ready = nil
	if jobs.IsSuspended(changed) {
		// The pod template may be changed again only in a Job that has not started.
		changed.Status.StartTime = nil
	}
	isWritten, err := p.write(ctx, stopping, changed, p.sendStatus)
	if isWritten {
		p.slot.fences[changed.UID] = changed.ResourceVersion
		p.comeBackIn(lookAgainForPods)
	}
	return err
}

func isAnswered(job *batchv1.Job, fence string) bool {
	return job.Status.Ready != nil && isNewer(job.ResourceVersion, fence)
}

// haveEnded reports whether every pod of the Job has ended, by what stands in etcd.
func (g *Gate) haveEnded(ctx context.Context, job types.UID) (bool, error) {
	pods, err := g.runningPods(ctx, job)
	return len(pods) == 0, err
}

// runningPods lists the pods of the Job that have not ended, also those that an orphaning
// delete has left without an owner.
func (g *Gate) runningPods(ctx context.Context, job types.UID) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := g.LiveReader.List(ctx, &pods, client.MatchingLabels{batchv1.ControllerUidLabel: string(job)}); err != nil {
		return nil, fmt.Errorf("list the pods of a Job: %w", err)
	}
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	}), nil
}

// deletePods deletes the pods of a Job that was deleted, as the garbage collector would
// if the finalizer did not keep the Job. Those that the user wants to keep it leaves.
func (p *pass) deletePods(ctx context.Context, job *batchv1.Job) error {
	if job.DeletionTimestamp.IsZero() || slices.Contains(job.Finalizers, metav1.FinalizerOrphanDependents) {
		return nil
	}
	pods, err := p.runningPods(ctx, job.UID)
	errs := []error{err}
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
	p.comeBackIn(lookAgainForPods)
	return errors.Join(errs...)
}
