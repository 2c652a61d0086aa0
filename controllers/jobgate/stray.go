package jobgate

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/lock/jobs"
)

// serveStray sees the holder through if it is not among the Jobs that want the lock:
// it has lost its label or has another key, since the webhook was away, or exists no more,
// since its finalizer was removed by force. The lock is released when the Job has no pods
// and, as far as it is still there, gets none.
func (p *pass) serveStray(ctx context.Context) error {
	held := p.slot.holding
	p.comeBackIn(lookAgainForPods) // No watch shows it.
	var job batchv1.Job
	err := p.LiveReader.Get(ctx, client.ObjectKey{Namespace: p.name.Namespace, Name: held.lock.Spec.HolderRef.Name}, &job)
	switch {
	case apierrors.IsNotFound(err), err == nil && job.UID != held.job:
		hasPods, err := jobs.AnyLive(ctx, p.LiveReader, p.name.Namespace, held.job)
		if err != nil || hasPods || p.isBlockedFor(held.job) {
			return err
		}
		return p.release(ctx)
	case err != nil:
		return fmt.Errorf("look for its Job: %w", err)
	}
	stray := &candidate{job: &job, phase: jobs.PhaseOf(&job)}
	switch lockNameOf(&job) {
	case p.name.Name:
		return nil // The cache will show it.
	case "":
		return p.seeOff(ctx, stray)
	}
	if stray.phase.MayHavePods() {
		return nil // It is stopped by the passes over its other lock.
	}
	if hasEnded, err := p.hasStrayEnded(ctx, stray); err != nil || !hasEnded {
		return err
	}
	return p.release(ctx)
}

// seeOff releases the lock of a Job that wants none any more.
func (p *pass) seeOff(ctx context.Context, stray *candidate) error {
	if hasEnded, err := p.hasStrayEnded(ctx, stray); err != nil || !hasEnded {
		return err
	}
	// Before the release, since nobody else would. If the Job was started or changed since,
	// nothing is written.
	isWritten, err := p.change(ctx, stray, removeFinalizer)
	if err != nil || !isWritten {
		return err
	}
	return p.release(ctx)
}

func (p *pass) hasStrayEnded(ctx context.Context, stray *candidate) (bool, error) {
	switch stray.phase {
	case jobs.Stopping, jobs.Ended:
		return p.stop(ctx, stray)
	case jobs.Running:
		return false, nil
	case jobs.Finishing:
		return false, p.awaitEnd(ctx, stray)
	case jobs.Waiting, jobs.Paused, jobs.Discarded:
	}
	return !p.isBlockedFor(stray.job.UID), nil
}
