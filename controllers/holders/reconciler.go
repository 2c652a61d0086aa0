package holders

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/controllers/reaper"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/holderref"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

const (
	// unwatchedAge is how old a lock becomes without a watch on its holder, so that locks
	// that are held for a moment cost none. A holder that ends earlier is found then.
	unwatchedAge = time.Second
	// podsPeriod is how often the pods of a Job are looked for that has ended before them,
	// besides when one of them succeeds or fails.
	podsPeriod = 5 * time.Second
)

// HolderReconciler releases locks whose spec.holderRef has ended. The garbage collector
// releases some of them, too; whoever is first does it.
type Reconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// LiveReader reads what stands in etcd.
	LiveReader client.Reader
	// Clock tells the time that a releaseDelay is measured by. Before a stale one, see
	// [servertime.IsFresh], is relied upon, LiveReader must have freshened it.
	Clock clock.Clock
	// Leadership says whether this replica releases, and watches.
	Leadership *leadership.Election
	// Events are told what was released, and why.
	Events events.EventRecorder
	// Audit takes a record of each lock that was released. Nil means nowhere.
	Audit audit.Sink
	// LeftToOthers reports whether another controller releases the lock. Nil means that
	// none does.
	LeftToOthers func(*v1alpha1.Lock) bool

	endedPods  client.Reader
	watches    *holderWatches
	unanswered reaper.Unanswered
}

// +kubebuilder:rbac:groups=forrst.dev,resources=locks,verbs=get;list;watch;update;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile releases the lock if its holder has ended, and otherwise leaves it to the
// watch on the holder to wake it. What the cache says of the lock is enough to decide: the
// preconditions of each write fail if it was renewed, handed on or taken over since, and that
// change wakes it again.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var lock v1alpha1.Lock
	err := r.Client.Get(ctx, request.NamespacedName, &lock)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	// One that is gone is an empty one.
	r.settle(ctx, request.NamespacedName, &lock)
	if lock.Spec.HolderRef == nil || !lock.DeletionTimestamp.IsZero() || !r.Leadership.IsLeader() ||
		r.LeftToOthers != nil && r.LeftToOthers(&lock) {
		r.watches.forget(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	end := End{Ref: *lock.Spec.HolderRef}
	if end.How, err = r.howPodEnded(ctx, &lock); err != nil {
		return ctrl.Result{}, err
	}
	if end.How == "" {
		of := holder{namespace: lock.Namespace, ref: end.Ref}
		if young := r.untilWatched(&lock); young > 0 && !r.watches.isWatched(of) {
			return ctrl.Result{RequeueAfter: young}, nil
		}
		end.How = r.watches.observe(request.NamespacedName, of) //nolint:contextcheck // the watch outlives this look at the lock
	}
	if end.How == "" {
		return ctrl.Result{}, nil
	}
	if rules.IsJob(&end.Ref) {
		isLeft, err := jobs.AnyLive(ctx, r.LiveReader, lock.Namespace, end.Ref.UID)
		if isLeft || err != nil {
			return ctrl.Result{RequeueAfter: podsPeriod}, err
		}
	}
	return r.releaseAfterDelay(ctx, &lock, end)
}

func (r *Reconciler) untilWatched(lock *v1alpha1.Lock) time.Duration {
	if lock.Spec.AcquireTime == nil {
		return 0
	}
	// A stamp that is ahead of this clock delays nothing for longer.
	return min(unwatchedAge, unwatchedAge-r.Clock.Since(lock.Spec.AcquireTime.Time))
}

// howPodEnded returns how the Pod has succeeded or failed that the lock is held for, or
// nothing. The narrowed cache says whether, a read how.
func (r *Reconciler) howPodEnded(ctx context.Context, lock *v1alpha1.Lock) (string, error) {
	ref := lock.Spec.HolderRef
	if !rules.IsPod(ref) {
		return "", nil
	}
	name := client.ObjectKey{Namespace: lock.Namespace, Name: ref.Name}
	known := podMetadata()
	if err := r.endedPods.Get(ctx, name, known); err != nil || known.UID != ref.UID {
		return "", client.IgnoreNotFound(err)
	}
	var pod corev1.Pod
	if err := r.LiveReader.Get(ctx, name, &pod); isGone(err) || err == nil && pod.UID != ref.UID {
		return howDeleted, nil
	} else if err != nil {
		return "", fmt.Errorf("read the Pod that has ended: %w", err)
	}
	return holderref.HowEnded(&pod), nil
}

// releaseAfterDelay releases the lock at once, or when its releaseDelay is over. When that
// began is recorded in the lock, so that another replica goes on from there.
func (r *Reconciler) releaseAfterDelay(ctx context.Context, lock *v1alpha1.Lock, end End) (ctrl.Result, error) {
	if lock.Spec.ReleaseDelay != nil && !servertime.IsFresh(r.Clock) {
		version := lock.ResourceVersion
		if err := r.LiveReader.Get(ctx, client.ObjectKeyFromObject(lock), lock); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		if lock.ResourceVersion != version {
			return ctrl.Result{RequeueAfter: time.Millisecond}, nil // The change is about to wake it.
		}
	}
	remaining := rules.UntilHolderReleased(lock, r.Clock.Now())
	switch {
	case remaining <= 0:
		return ctrl.Result{}, r.release(ctx, lock, end)
	case lock.Spec.HolderEndTime != nil:
		return ctrl.Result{RequeueAfter: remaining}, nil
	}
	next, err := rules.RecordHolderEnd(lock, r.Clock.Now())
	if err != nil {
		return ctrl.Result{}, err
	}
	switch err := r.Client.Update(ctx, next); {
	case isGone(err), apierrors.IsConflict(err):
		return ctrl.Result{}, nil // Somebody moved first, which wakes us if the lock still exists.
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("record the end of the holder: %w", err)
	}
	r.tell(lock, holderEndedReason, fmt.Sprintf("%s; the lock stays for %s", end, remaining))
	return ctrl.Result{RequeueAfter: remaining}, nil
}

func (r *Reconciler) release(ctx context.Context, lock *v1alpha1.Lock, end End) error {
	err := r.Client.Delete(ctx, lock, client.Preconditions{UID: &lock.UID, ResourceVersion: &lock.ResourceVersion})
	switch {
	case isGone(err), apierrors.IsConflict(err):
		return nil // Somebody moved first, which wakes us if the lock still exists.
	case err != nil:
		r.failed(lock, err)
		return fmt.Errorf("release the lock of a holder that has ended: %w", err)
	}
	r.unanswered.Take(client.ObjectKeyFromObject(lock)) // the try before it did not happen
	r.released(ctx, lock, end, false)
	return nil
}
