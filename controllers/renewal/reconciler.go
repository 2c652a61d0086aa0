package renewal

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/lockevents"
	"forrst.dev/lock-operator/lock/refusal"
	"forrst.dev/lock-operator/lock/rules"
)

const (
	// concurrency is the number of simultaneous renewals, and timeout bounds one. Etcd commits concurrent writes together.
	concurrency = 16
	timeout     = 10 * time.Second
	// maxBackoff bounds the delay before a look that has failed is repeated. It is well below the time that is left
	// of the shortest ttl when a renewal is due.
	maxBackoff = 10 * time.Second
	// maxJudgements bounds how often one look judges a lock that changes meanwhile.
	maxJudgements = 4
)

// Reconciler renews the locks with the renewalPolicy Operator. It ends none: a lock that it does not renew
// expires like any other. It is a [prometheus.Collector] of how that goes. All fields but Audit and Events are required.
type Reconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// LiveReader reads from the API server.
	LiveReader client.Reader
	// Clock tells the time.
	Clock clock.WithTicker
	// Leadership says whether this replica renews.
	Leadership *leadership.Election
	// MaxOperatorRenewal is what the annotation of a namespace may allow at most, see [rules.MaxOperatorRenewal]. Zero
	// allows no renewal.
	MaxOperatorRenewal time.Duration
	// Audit takes a record of each renewal. Nil discards the records.
	Audit audit.Sink
	// Events tells of locks that are not renewed any more, once for each. Nil makes no Events.
	Events *lockevents.Reporter

	failures refusal.Logged
	over     over
	pending  pending
	outcomes outcomes
}

// +kubebuilder:rbac:groups=forrst.dev,resources=locks,verbs=get;list;watch;patch

// Reconcile renews the lock if that is due, and otherwise returns when it will be. The renewal is of the version
// of the lock that was judged, so it fails if the lock has been released, handed on or changed since. The cache is
// enough to renew a lock, and not to give one up or after a conflict: a watch that has lost renewals must not let the lock
// expire.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if !r.Leadership.IsLeader() {
		r.forget(request.NamespacedName)
		return ctrl.Result{}, nil // On becoming the leader it looks at all locks.
	}
	var known v1alpha1.Lock
	if err := r.Client.Get(ctx, request.NamespacedName, &known); err != nil {
		r.forget(request.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !isByOperator(&known) {
		r.forget(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	delay, err := r.judge(ctx, &known)
	if err != nil {
		delay = r.failed(ctx, &known, err)
	}
	return ctrl.Result{RequeueAfter: delay}, nil
}

// judge returns after which time the lock is to be judged again; zero if no more.
func (r *Reconciler) judge(ctx context.Context, lock *v1alpha1.Lock) (time.Duration, error) {
	name := client.ObjectKeyFromObject(lock)
	longest, err := r.allowedIn(ctx, r.Client, name.Namespace)
	if err != nil {
		return 0, err
	}
	isLive := false
	for range maxJudgements {
		judged := r.Clock.Now()
		next, wait := rules.NextOperatorRenewal(lock, longest, judged)
		switch {
		case next == rules.Renewal && wait > 0:
			r.over.forget(name)
			r.pending.keep(lock)
			return wait, nil
		case next == rules.Renewal:
			r.pending.keep(lock)
			stored, delay := r.renew(ctx, lock, longest, judged)
			if stored == nil {
				return delay, nil
			}
			lock = stored
		case !isLive:
			isLive = true
			if longest, err = r.allowedIn(ctx, r.LiveReader, name.Namespace); err != nil {
				return 0, err
			}
			if lock, err = r.live(ctx, name); lock == nil {
				return 0, err
			}
		case next == rules.RenewalOver:
			r.pending.forget(name)
			if r.over.isNew(lock) {
				r.Events.RenewalEnded(lock)
			}
			return wait, nil // The namespace may allow more by then.
		default:
			r.forget(name)
			return 0, nil
		}
	}
	return minDelay, nil
}

// forget is for a lock that is gone, or that the operator does not renew.
func (r *Reconciler) forget(name types.NamespacedName) {
	r.over.forget(name)
	r.pending.forget(name)
}

// live returns the lock from the API server, or nil if there is none.
func (r *Reconciler) live(ctx context.Context, name types.NamespacedName) (*v1alpha1.Lock, error) {
	var lock v1alpha1.Lock
	if err := r.LiveReader.Get(ctx, name, &lock); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return &lock, nil
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
	// From the start, since the first renewals would wait for it.
	if _, err := manager.GetCache().GetInformer(context.Background(), metadataOfNamespaces(), cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("informer of namespaces: %w", err)
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
			NewQueue:                r.newQueue(locks.GetStore()),
		}).
		Complete(r)
}
