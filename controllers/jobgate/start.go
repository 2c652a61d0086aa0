package jobgate

import (
	"context"
	"fmt"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// start starts the Job with the fencing token of its grant, in one write.
func (p *pass) start(ctx context.Context, holder *jobInfo) error {
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
		fmt.Sprintf("Holds %s and is started, with the fencing token %d", holder.lockOptions.FullKey(), token))
	return nil
}
