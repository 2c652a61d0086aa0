package jobgate

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/controllers/jobpods"
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
	if apierrors.IsNotFound(err) || err == nil && job.UID != held.job {
		hasPods, err := jobpods.AnyLive(ctx, p.LiveReader, p.name.Namespace, held.job)
		if err != nil || hasPods {
			return err
		}
		return p.release(ctx)
	}
	if err != nil {
		return fmt.Errorf("look for its Job: %w", err)
	}
	other := lockNameOf(&job)
	if other == p.name.Name {
		return nil // The cache will show it.
	}
	stray := &candidate{job: &job, phase: jobs.PhaseOf(&job)}
	switch stray.phase {
	case jobs.Running, jobs.Finishing:
		return nil
	case jobs.Stopping:
		if other != "" {
			return nil // It is stopped by the passes over that lock.
		}
		fallthrough
	case jobs.Ended:
		if hasEnded, err := p.stop(ctx, stray); err != nil || !hasEnded {
			return err
		}
	case jobs.Waiting, jobs.Paused, jobs.Discarded:
	}
	if other == "" {
		// Before the release, since nobody else would. If the Job was started or changed since,
		// nothing is written.
		isWritten, err := p.change(ctx, stray, removeFinalizer)
		if err != nil || !isWritten {
			return err
		}
	}
	return p.release(ctx)
}
