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
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/rules"
)

const (
	// gates is how many passes may be under way. Each waits for one write or two.
	concurrency = 32
	// passTimeout bounds one pass.
	passTimeout = 30 * time.Second
	// lookAgainAfter is how long a lock that is held or waited for is left unlooked at,
	// so that a replica that leads no longer soon lets go of it.
	resyncPeriod = 10 * time.Second
	// maxBackoff is how long a pass that failed waits at most. It must be short against the
	// ttl of a Job's lock, which is renewed by passes.
	maxBackoff = 2 * time.Second
)

// Engine takes, renews and releases locks, and hands them on. [lock.Engine] is one.
type Engine interface {
	lock.Backend
	// HandOff ends a grant if a caller of the same engine gets the lock in the same write,
	// and reports whether it has. Otherwise nothing changes.
	HandOff(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof) (isEnded bool, err error)
}

var _ Engine = (*engine.Engine)(nil)

// Gate has Jobs run under their locks. Its fields are set before
// [Gate.SetupWithManager] and not changed after.
type Reconciler struct {
	// Client reads Locks from the cache and writes Jobs to the API server. Required.
	Client client.Client
	// LiveReader reads what stands in etcd. Required.
	LiveReader client.Reader
	// Engine takes, renews and releases the locks, with the identity that Holder names. It
	// is started by the caller. Required.
	Engine Engine
	// Holder is the identity that the locks of Jobs are held by, this operator's. Required.
	Holder string
	// Limits bounds the ttl of the locks. Required.
	Limits rules.Limits
	// Clock tells the time. Required.
	Clock clock.WithTicker
	// Leadership says whether this replica acts. Required.
	Leadership leadership.Leadership
	// Recorder tells users what happens to their Jobs. Required.
	Recorder events.EventRecorder
	// AnnotateAfter is how long a Job waits before its annotation says for what. Zero means
	// a minute.
	AnnotateAfter time.Duration

	// jobs reads the Jobs with the label from a cache of their own, and jobsOf those of them
	// that want a lock, without copying them. waitForJobs waits until the cache has caught up.
	jobs        client.Reader
	jobsOf      func(lock client.ObjectKey) ([]*batchv1.Job, error)
	waitForJobs func(context.Context) bool
	// reports bounds how many Jobs are told for what they wait.
	reports flowcontrol.PassiveRateLimiter
	// queue and working are those of the running controller.
	queue   leadership.Queue
	working context.Context //nolint:containedctx // the lifetime of the controller, which contenders end with

	mu    sync.Mutex
	states map[client.ObjectKey]*lockState
	// contending counts the goroutines that wait for locks or annotate Jobs. None is added
	// once isEnding.
	background sync.WaitGroup
	isEnding   bool
}

// The Job controller is told the outcome of a Job that was not run in the Job's status;
// pods are deleted where the garbage collector leaves them, since the Job has a
// finalizer.
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
		candidate.isBehind = state.isBehind(candidate.job)
	}
	err = pass.run(ctx)
	state.waiting.Store(pass.countWaiting())
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

// IsForJob reports whether the lock was taken for a Job that runs under it. The gate
// releases it, whatever becomes of the Job. Safe for concurrent use.
func (r *Reconciler) IsForJob(held *v1alpha1.Lock) bool {
	ref := held.Spec.HolderRef
	return held.Spec.Holder == r.Holder && ref != nil && ref.Kind == jobKind && ref.APIVersion == jobAPIVersion
}

// isEnded reports whether the error of the engine says that the lock is not held any
// more under the owner token.
func isEnded(err error) bool {
	return errors.Is(err, lock.ErrNotHeld) || errors.Is(err, lock.ErrOwnerMismatch)
}
