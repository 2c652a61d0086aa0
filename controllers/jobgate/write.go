package jobgate

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/refusal"
)

// writeTimeout bounds one write of a Job.
const writeTimeout = 5 * time.Second

// change changes the spec or metadata of the Job, and reports whether the Job was still as in
// the cache, and thus written.
func (p *pass) change(ctx context.Context, candidate *jobInfo, change func(*batchv1.Job)) (isWritten bool, err error) {
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
func (p *pass) write(ctx context.Context, candidate *jobInfo, changed *batchv1.Job, send sender) (isWritten bool, err error) {
	// A patch with the resourceVersion, since this program may not know every field of the
	// pod template.
	err = send(ctx, changed, client.MergeFromWithOptions(candidate.job, client.MergeFromWithOptimisticLock{}))
	switch {
	case refusal.IsConflict(err), refusal.IsNotFound(err):
		// The cache is behind. Its next event causes another pass.
		return false, nil
	case err != nil:
		return false, fmt.Errorf("write the Job %s: %w", candidate.job.Name, err)
	}
	p.state.expectedVersions[changed.UID] = changed.ResourceVersion
	candidate.isCacheStale = true
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

func removeFinalizer(job *batchv1.Job) { controllerutil.RemoveFinalizer(job, v1alpha1.LockFinalizer) }
