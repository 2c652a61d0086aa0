package jobgate

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/refusal"
)

// serveUnlistedHolder serves a holder that is not among the Jobs that want the lock: it has
// lost its label or has another key, because the webhook was down, or it no longer exists,
// because its finalizer was removed by force. The lock is released when the Job has no pods
// and will get none.
func (p *pass) serveUnlistedHolder(ctx context.Context) error {
	held := p.state.grant
	p.requeueAfter(podsPeriod) // There is no watch on it.
	var job batchv1.Job
	err := p.LiveReader.Get(ctx, client.ObjectKey{Namespace: p.name.Namespace, Name: held.lock.Spec.HolderRef.Name}, &job)
	switch {
	case refusal.IsNotFound(err), err == nil && job.UID != held.job:
		hasPods, err := jobs.AnyLive(ctx, p.LiveReader, p.name.Namespace, held.job)
		if err != nil || hasPods {
			return err
		}
		return p.release(ctx)
	case err != nil:
		return fmt.Errorf("read its Job: %w", err)
	}
	holder := &jobInfo{job: &job, phase: jobs.PhaseOf(&job)}
	switch lockNameOf(&job) {
	case p.name.Name:
		return nil // The cache will show it.
	case "":
		return p.releaseUnlabelled(ctx, holder)
	}
	if holder.phase.MayHavePods() {
		return nil // It is stopped by the passes over its other lock.
	}
	if hasEnded, err := p.hasUnlistedEnded(ctx, holder); err != nil || !hasEnded {
		return err
	}
	return p.release(ctx)
}

// releaseUnlabelled releases the lock of a Job that no longer wants one.
func (p *pass) releaseUnlabelled(ctx context.Context, holder *jobInfo) error {
	if hasEnded, err := p.hasUnlistedEnded(ctx, holder); err != nil || !hasEnded {
		return err
	}
	// Before the release: nothing else would remove it. If the Job has changed since, nothing
	// is written.
	isWritten, err := p.change(ctx, holder, removeFinalizer)
	if err != nil || !isWritten {
		return err
	}
	return p.release(ctx)
}

func (p *pass) hasUnlistedEnded(ctx context.Context, holder *jobInfo) (bool, error) {
	switch holder.phase {
	case jobs.Stopping, jobs.Ended:
		return p.ensurePodsTerminated(ctx, holder)
	case jobs.Running:
		return false, nil
	case jobs.Finishing:
		return false, p.ensureStartTime(ctx, holder)
	case jobs.Waiting, jobs.Paused, jobs.Discarded:
	}
	return true, nil
}
