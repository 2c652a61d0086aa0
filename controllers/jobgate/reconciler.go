package jobgate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/observe"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/tracing"
)

const (
	// concurrency bounds the passes at a time. Each waits for one write or two.
	concurrency = 32
	// passTimeout bounds one pass.
	passTimeout = 30 * time.Second
	// resyncPeriod is the longest interval between passes over a lock that is held or waited
	// for. A replica that no longer leads stops waiting within it.
	resyncPeriod = 10 * time.Second
	// maxBackoff bounds the delay before a failed pass is repeated. It must be short against
	// the ttl of a Job's lock, which is renewed by passes.
	maxBackoff = 2 * time.Second
)

// Reconciler runs Jobs under their locks. Its fields must not change after
// [Reconciler.SetupWithManager].
type Reconciler struct {
	// Client reads Locks from the cache and writes Jobs to the API server. Required.
	Client client.Client
	// LiveReader reads from the API server. Required.
	LiveReader client.Reader
	// Engine takes, renews and releases the locks, with the identity that Holder names. The
	// caller starts it. Required.
	Engine lock.Backend
	// Holder is the user name of this operator, which holds the locks of Jobs. Required.
	Holder string
	// Limits bounds the ttl of the locks. Required.
	Limits rules.Limits
	// Clock tells the time. Required.
	Clock clock.WithTicker
	// Leadership says whether this replica acts. Required.
	Leadership leadership.Leadership
	// Recorder takes the Events about Jobs. Required.
	Recorder events.EventRecorder
	// Audit takes the records of Jobs that are refused a lock or their start. Nil means no records.
	Audit audit.Sink
	// Count counts the requests for locks that have ended. Nil counts none.
	Count func(observe.Acquired)
	// Tracer makes the spans of Jobs that wait. Nil makes none.
	Tracer *tracing.Tracer
	// AnnotateAfter is how long a Job waits before an annotation reports its place and the
	// holder. Zero means a minute.
	AnnotateAfter time.Duration

	// jobs reads the Jobs with the label from a cache of their own, and jobsOf those of them
	// that want a lock, without copying them. waitForJobs waits until the cache has caught up.
	jobs        client.Reader
	jobsOf      func(lock client.ObjectKey) ([]*batchv1.Job, error)
	waitForJobs func(context.Context) bool
	// reports bounds the rate of reports to waiting Jobs.
	reports flowcontrol.PassiveRateLimiter
	// workqueue and working are those of the running controller.
	workqueue leadership.Queue
	working   context.Context // the lifetime of the controller, which ends all waiters

	mu     sync.Mutex
	states map[client.ObjectKey]*lockState
	// background counts the goroutines that wait for locks or annotate Jobs. None is added
	// once isEnding.
	background sync.WaitGroup
	isEnding   bool
}

// The status of a Job that was not run tells the Job controller its outcome. Pods are
// deleted where the garbage collector does not, since the Job has a finalizer.
//
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=batch,resources=jobs/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile makes one pass over a lock and the Jobs that want it. The request names the
// Lock.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if !r.Leadership.IsLeader() {
		r.forget(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	shown, err := r.jobsOf(request.NamespacedName)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("list the Jobs of the lock %s: %w", request.NamespacedName, err)
	}
	state := r.state(request.NamespacedName)
	state.jobQueue.update(shown, r.Limits.MaxTTL)
	state.forgetGoneJobs()
	candidates := state.jobQueue.ordered
	pass := &pass{Reconciler: r, name: request.NamespacedName, state: state, candidates: candidates, now: r.Clock.Now()}
	for _, candidate := range candidates {
		candidate.isCacheStale = state.isCacheStale(candidate.job)
	}
	err = pass.run(ctx)
	state.count.Store(pass.countJobs())
	state.lastPass.Store(pass.result())
	r.dropIfIdle(request.NamespacedName, len(candidates))
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("lock %s: %w", request.NamespacedName, err)
	}
	if state.grant != nil || state.waiter != nil {
		pass.requeueAfter(resyncPeriod)
	}
	return ctrl.Result{RequeueAfter: pass.requeue}, nil
}

// lockNameOf returns the name of the Lock that a Job runs under, or "".
func lockNameOf(job *batchv1.Job) string {
	if !jobs.IsLocked(job) {
		return ""
	}
	terms, problems := jobs.ParseTerms(job.Annotations, jobs.Limits{})
	if len(problems) > 0 {
		return ""
	}
	return terms.FullKey().ObjectName()
}

// IsForJob reports whether the lock was taken for a Job that runs under it. This reconciler
// alone releases it. Safe for concurrent use.
func (r *Reconciler) IsForJob(held *v1alpha1.Lock) bool {
	ref := held.Spec.HolderRef
	return held.Spec.Holder == r.Holder && ref != nil && ref.Kind == jobKind && ref.APIVersion == jobAPIVersion
}

// isEnded reports whether the error of the engine says that the lock is no longer held under
// the owner token.
func isEnded(err error) bool {
	return errors.Is(err, lock.ErrNotHeld) || errors.Is(err, lock.ErrOwnerMismatch)
}
