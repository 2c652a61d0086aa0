package renewal

import (
	"context"
	"fmt"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/controllers/reaper"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/lockevents"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

const (
	// concurrency is the number of simultaneous renewals, and timeout bounds one.
	concurrency = 8
	timeout     = 10 * time.Second
	// maxBackoff bounds the delay before a failed renewal is repeated. It is well below the time that is left
	// of the shortest ttl when a renewal is due.
	maxBackoff = 10 * time.Second
	// minDelay is the shortest time between two renewals of a lock.
	minDelay = time.Second
)

// Reconciler renews the locks with the renewalPolicy Operator. It ends none: a lock that it does not renew
// expires like any other. All fields but Audit and Events are required.
type Reconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// LiveReader reads from the API server.
	LiveReader client.Reader
	// Clock tells the time. A stale clock, see [servertime.IsFresh], is freshened by a read through LiveReader
	// first.
	Clock clock.PassiveClock
	// Leadership says whether this replica renews.
	Leadership *leadership.Election
	// Audit takes a record of each renewal. Nil discards the records.
	Audit audit.Sink
	// Events tells of locks that are not renewed any more. Nil makes no Events.
	Events *lockevents.Reporter
}

// +kubebuilder:rbac:groups=forrst.dev,resources=locks,verbs=get;list;watch;patch

// Reconcile renews the lock if that is due, and otherwise returns when it will be. The renewal is of the version
// of the lock that was judged, so it fails if the lock has been released, handed on or changed since; the watch
// then shows what there is instead.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if !r.Leadership.IsLeader() {
		return ctrl.Result{}, nil // On becoming the leader it looks at all locks.
	}
	var known v1alpha1.Lock
	if err := r.Client.Get(ctx, request.NamespacedName, &known); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !isByOperator(&known) {
		return ctrl.Result{}, nil
	}
	if !servertime.IsFresh(r.Clock) {
		known = v1alpha1.Lock{} // Decoding keeps the fields that an answer does not have.
		if err := r.LiveReader.Get(ctx, request.NamespacedName, &known); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	switch next, wait := rules.NextOperatorRenewal(&known, r.Clock.Now()); {
	case next == rules.NoRenewal:
		return ctrl.Result{}, nil
	case next == rules.RenewalOver:
		r.Events.RenewalEnded(&known)
		return ctrl.Result{}, nil
	case wait > 0:
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	return r.renew(ctx, &known)
}

// renew writes nothing but stamps, and needs no fields that the cache leaves out. Whatever the manifest says keeps
// its text and its field manager: tools would take "1m0s" for a change of "1m".
func (r *Reconciler) renew(ctx context.Context, known *v1alpha1.Lock) (ctrl.Result, error) {
	next, err := rules.Renew(known, rules.Proof{Owner: known.Spec.Owner}, 0, r.Clock.Now())
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("renew a lock with the renewalPolicy Operator: %w", err)
	}
	renewed := known.DeepCopy()
	renewed.Spec.RenewTime, renewed.Spec.ExpireTime, renewed.Spec.FencingToken = next.Spec.RenewTime, next.Spec.ExpireTime, next.Spec.FencingToken
	switch err := r.Client.Patch(ctx, renewed, client.MergeFromWithOptions(known, client.MergeFromWithOptimisticLock{})); {
	case reaper.HasChanged(err):
		return ctrl.Result{RequeueAfter: minDelay}, nil // The cache is behind; later it knows the lock, or that it is gone.
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("renew a lock with the renewalPolicy Operator: %w", err)
	}
	audit.OrNowhere(r.Audit).Record(audit.Prolonged(audit.Controller, "", known, renewed))
	logf.FromContext(ctx).V(1).Info("Renewed a Lock", "lock", klog.KObj(renewed))
	// The watch shows the renewal as well; but a watch that has lost it must not let the lock expire.
	upcoming, wait := rules.NextOperatorRenewal(renewed, r.Clock.Now())
	if upcoming != rules.Renewal {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(wait, minDelay)}, nil
}

func isByOperator(object client.Object) bool {
	known, isLock := object.(*v1alpha1.Lock)
	return isLock && known.Spec.RenewalPolicy == v1alpha1.RenewalByOperator
}

// SetupWithManager adds the reconciler to the manager.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	informer, err := manager.GetCache().GetInformer(context.Background(), &v1alpha1.Lock{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("informer of locks: %w", err)
	}
	locks, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return fmt.Errorf("the informer of locks is a %T, which has no store", informer)
	}
	return ctrl.NewControllerManagedBy(manager).
		Named("lock-renewal").
		For(&v1alpha1.Lock{}, builder.WithPredicates(predicate.NewPredicateFuncs(isByOperator))).
		WatchesRawSource(source.Func(leadership.EnqueueLocks(r.Leadership, locks))).
		WithOptions(controller.Options{
			NeedLeaderElection:      new(false),
			MaxConcurrentReconciles: concurrency,
			ReconciliationTimeout:   timeout,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](100*time.Millisecond, maxBackoff),
		}).
		Complete(r)
}
