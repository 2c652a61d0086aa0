package jobgate

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/refusal"
)

// finalizerReconciler removes the finalizer of Jobs whose pods have all ended. It works
// beside the passes: the next Job does not wait for that write.
type finalizerReconciler struct{ *Reconciler }

// Reconcile implements [reconcile.Reconciler]. The request names a Job.
func (f finalizerReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if !f.Leadership.IsLeader() {
		return ctrl.Result{}, nil
	}
	var job batchv1.Job
	if err := f.jobs.Get(ctx, request.NamespacedName, &job); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	phase := jobs.PhaseOf(&job)
	if phase != jobs.Discarded && phase != jobs.Ended || !controllerutil.ContainsFinalizer(&job, v1alpha1.LockFinalizer) {
		return ctrl.Result{}, nil
	}
	if phase == jobs.Ended && !jobs.OnlyPodSucceeded(&job) {
		hasPods, err := jobs.AnyLive(ctx, f.LiveReader, job.Namespace, job.UID)
		if err != nil || hasPods {
			return ctrl.Result{RequeueAfter: podsPeriod}, err
		}
	}
	changed := job.DeepCopy()
	removeFinalizer(changed)
	err := f.Client.Patch(ctx, changed, client.MergeFromWithOptions(&job, client.MergeFromWithOptimisticLock{}))
	if err != nil && !refusal.IsConflict(err) && !refusal.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("remove the finalizer of the Job: %w", err)
	}
	return ctrl.Result{}, nil
}
