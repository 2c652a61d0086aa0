package expiry

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/controllers/reaper"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

const (
	// justWritten is how long after a grant or a renewal a stale clock is left at that.
	justWritten = time.Second
)

// ExpiryReconciler deletes locks that have expired. Nobody waits for it: whoever
// wants an expired lock takes it over.
type Reconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// LiveReader reads what stands in etcd. Required if Clock can be stale.
	LiveReader client.Reader
	// ClockSkewAllowance is how long after its expireTime a lock is left alone.
	ClockSkewAllowance time.Duration
	// Clock tells the time that expiry is judged by. Before a stale one, see
	// [servertime.IsFresh], is relied upon, LiveReader must have freshened it.
	Clock clock.PassiveClock
	// Leadership says whether this replica deletes.
	Leadership *leadership.Election
	// Audit takes a record of each lock that was deleted. Nil means nowhere.
	Audit audit.Sink

	unanswered reaper.Unanswered
}

// +kubebuilder:rbac:groups=forrst.dev,resources=locks,verbs=get;list;watch;delete

// Reconcile deletes the lock if it has expired and otherwise comes back when it
// will have. A replica that does not lead does nothing: when it comes to lead, it
// looks at all of them. With a fresh clock, what the cache says is enough to decide:
// the preconditions of the delete fail if the lock was renewed or taken over since. A
// stale clock needs a live read, which brings the API server's time along, in either
// direction: one that is behind would come back too late.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if !r.Leadership.IsLeader() {
		return ctrl.Result{}, nil
	}
	var lock v1alpha1.Lock
	err := r.Client.Get(ctx, request.NamespacedName, &lock)
	if client.IgnoreNotFound(err) == nil {
		r.settle(request.NamespacedName, lock.UID, lock.ResourceVersion)
	}
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !servertime.IsFresh(r.Clock) {
		if r.isJustWritten(&lock) {
			return ctrl.Result{RequeueAfter: justWritten}, nil
		}
		if err := r.LiveReader.Get(ctx, request.NamespacedName, &lock); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	if !lock.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	if wait := rules.UntilReclaimable(&lock, r.Clock.Now(), r.ClockSkewAllowance+servertime.MaxAhead(r.Clock)); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	return ctrl.Result{}, r.reap(ctx, &lock)
}

// isJustWritten reports whether the lock was granted or renewed a moment ago. The answer
// to that write, if it was this replica's, is about to make the clock fresh; there is
// no hurry to make a read for it.
func (r *Reconciler) isJustWritten(lock *v1alpha1.Lock) bool {
	return lock.Spec.RenewTime != nil && r.Clock.Since(lock.Spec.RenewTime.Time).Abs() < justWritten
}

func (r *Reconciler) reap(ctx context.Context, lock *v1alpha1.Lock) error {
	err := r.Client.Delete(ctx, lock, client.Preconditions{UID: &lock.UID, ResourceVersion: &lock.ResourceVersion})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// Somebody moved first. If the lock still exists, its change wakes us.
		return nil
	case err != nil:
		r.failed(lock, err)
		return fmt.Errorf("delete the expired lock: %w", err)
	}
	r.deleted(lock)
	logf.FromContext(ctx).V(1).Info("Deleted an expired Lock", "lock", klog.KObj(lock), "holder", lock.Spec.Holder)
	return nil
}

// SetupWithManager has the manager run the reconciler.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	everyReplica := false
	return ctrl.NewControllerManagedBy(manager).
		Named("lock-expiry").
		For(&v1alpha1.Lock{}).
		WatchesRawSource(source.Func(leadership.EnqueueLocks(r.Leadership, r.Client))).
		WithOptions(controller.Options{
			NeedLeaderElection:      &everyReplica,
			MaxConcurrentReconciles: reaper.Concurrency,
			ReconciliationTimeout:   reaper.Timeout,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](10*time.Millisecond, reaper.MaxBackoff),
		}).
		Complete(r)
}
