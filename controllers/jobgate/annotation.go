package jobgate

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/refusal"
)

// annotatingTimeout bounds the writes of the annotations of one pass.
const annotatingTimeout = 10 * time.Second

// annotation is the value of [v1alpha1.LockWaitingAnnotation] for a waiting Job.
type annotation struct {
	job  *batchv1.Job
	text string
}

// annotateAll writes the annotations in the background, because a pass may have to hand off
// the lock. A Job may be started at the same time: either its start fails with a conflict and
// is repeated, or its annotation is not written.
func (p *pass) annotateAll(annotations []annotation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isEnding {
		return
	}
	p.state.annotating.Add(1)
	p.background.Go(func() {
		defer p.state.annotating.Add(-1)
		ctx, cancel := context.WithTimeout(p.working, annotatingTimeout)
		defer cancel()
		for _, annotation := range annotations {
			if !p.Leadership.IsLeader() {
				return
			}
			if err := p.annotateJob(ctx, annotation); err != nil {
				if p.working.Err() == nil {
					logf.FromContext(ctx).Error(err, "Could not annotate a waiting Job; this and the following Jobs have their events only",
						"job", klog.KObj(annotation.job))
				}
				return
			}
		}
	})
}

// annotateJob writes one annotation, unless the Job no longer waits.
func (r *Reconciler) annotateJob(ctx context.Context, annotation annotation) error {
	err := r.sendAnnotation(ctx, annotation.job, annotation.text)
	if refusal.IsConflict(err) {
		var current batchv1.Job
		if err := r.LiveReader.Get(ctx, client.ObjectKeyFromObject(annotation.job), &current); err != nil {
			return client.IgnoreNotFound(err)
		}
		if current.UID != annotation.job.UID || jobs.PhaseOf(&current) != jobs.Waiting {
			return nil
		}
		err = r.sendAnnotation(ctx, &current, annotation.text)
	}
	if err != nil && !refusal.IsConflict(err) && !refusal.IsNotFound(err) {
		return fmt.Errorf("write the annotation %s: %w", v1alpha1.LockWaitingAnnotation, err)
	}
	return nil
}

func (r *Reconciler) sendAnnotation(ctx context.Context, job *batchv1.Job, text string) error {
	changed := job.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, v1alpha1.LockWaitingAnnotation, text)
	return r.Client.Patch(ctx, changed, client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{}))
}
