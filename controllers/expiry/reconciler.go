package expiry

import (
	"context"
	"fmt"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/controllers/reaper"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/lockevents"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

// Reconciler deletes locks that have expired. No caller waits for it: a caller that wants
// an expired lock takes it over. As a [prometheus.Collector] it counts the locks.
type Reconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// ClockSkewAllowance is added to the expireTime of a lock before the lock is deleted.
	ClockSkewAllowance time.Duration
	// Clock tells the time that expiry is judged by.
	Clock clock.PassiveClock
	// Leadership says whether this replica deletes.
	Leadership *leadership.Election
	// Audit takes a record of each lock that was deleted. Nil discards the records.
	Audit audit.Sink
	// Events tells of locks that were deleted or taken over. Nil makes no Events.
	Events *lockevents.Reporter

	reaper reaper.Reaper
	// all returns the locks of the cache.
	all func() []*v1alpha1.Lock
}

// +kubebuilder:rbac:groups=forrst.dev,resources=locks,verbs=get;list;watch;update;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile deletes the lock if it has expired, even if a delete in the foreground has not come to
// its end, and otherwise returns when it will have. A replica that does not lead does nothing: on
// becoming the leader it looks at all locks. The cached lock is enough to
// decide: the preconditions of the delete fail if the lock was renewed or taken over since.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	deleted, err := r.reaper.Resolve(ctx, r.Client, request.NamespacedName, r.Clock.Now())
	if err != nil {
		return ctrl.Result{}, err
	}
	if deleted != nil {
		r.record(deleted, true)
	}
	if !r.Leadership.IsLeader() {
		return ctrl.Result{RequeueAfter: r.reaper.RecheckAfter(request.NamespacedName)}, nil
	}
	var lock v1alpha1.Lock
	if err := r.Client.Get(ctx, request.NamespacedName, &lock); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if wait := rules.UntilReclaimable(&lock, r.Clock.Now(), r.grace()); wait > horizon {
		return ctrl.Result{}, nil // A sweep finds it in time.
	} else if wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	isDeleted, err := r.reaper.Delete(ctx, r.Client, &lock, r.Clock.Now())
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("delete the expired lock: %w", err)
	}
	if isDeleted {
		r.record(&lock, false)
		logf.FromContext(ctx).V(1).Info("Deleted an expired Lock", "lock", klog.KObj(&lock), "holder", lock.Spec.Holder)
	}
	return ctrl.Result{}, nil
}

// record writes the audit record of a deleted lock, and its Event.
func (r *Reconciler) record(expired *v1alpha1.Lock, isUnconfirmed bool) {
	r.Events.Expired(expired)
	record := audit.Ended(audit.Expired, audit.Reaped, audit.Controller, "", expired, r.Clock.Now())
	record.Unconfirmed = isUnconfirmed
	audit.OrNowhere(r.Audit).Record(record)
}

// changed tells of a take-over. Another holder may make it through any component, or without one.
func (r *Reconciler) changed(before, after any) {
	former, isLock := before.(*v1alpha1.Lock)
	present, isLockStill := after.(*v1alpha1.Lock)
	if isLock && isLockStill && r.Leadership.IsLeader() {
		r.Events.Changed(former, present)
	}
}

// grace is how long after its expireTime a lock is left alone.
func (r *Reconciler) grace() time.Duration {
	return r.ClockSkewAllowance + servertime.MaxAhead(r.Clock)
}

// SetupWithManager adds the reconciler to the manager.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	informer, err := manager.GetCache().GetInformer(context.Background(), &v1alpha1.Lock{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("informer of locks: %w", err)
	}
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return fmt.Errorf("the informer of locks is a %T, which has no store", informer)
	}
	r.all = func() (locks []*v1alpha1.Lock) {
		for _, object := range shared.GetStore().List() {
			locks = append(locks, object.(*v1alpha1.Lock))
		}
		return locks
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: r.changed}); err != nil {
		return fmt.Errorf("follow the changes of locks: %w", err)
	}
	return ctrl.NewControllerManagedBy(manager).
		Named("lock-expiry").
		For(&v1alpha1.Lock{}, builder.WithPredicates(r.changesThatMatter())).
		WatchesRawSource(source.Func(func(ctx context.Context, queue leadership.Queue) error {
			go r.sweep(ctx, clock.RealClock{}, queue)
			return nil
		})).
		WithOptions(reaper.ControllerOptions()).
		Complete(r)
}
