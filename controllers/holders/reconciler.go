package holders

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	"forrst.dev/lock-operator/lock/refusal"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

const (
	// unwatchedAge is the age at which a lock gets a watch on its holder: locks that are
	// held for a moment cost none. If the holder ends earlier, it is found out then.
	unwatchedAge = time.Second
	// podsPeriod is the interval between reads of the remaining pods of a Job that has ended.
	// A pod that succeeds or fails causes a read, too.
	podsPeriod = 5 * time.Second
)

// Reconciler releases locks whose spec.holderRef has ended. The holder is no owner of the lock, so
// the garbage collector releases none of them for that.
type Reconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// LiveReader reads from the API server.
	LiveReader client.Reader
	// Clock tells the time that a releaseDelay is measured by. If it is a [servertime.Clock] that has heard no answer for
	// 20 s, a read through LiveReader comes first.
	Clock clock.Clock
	// Leadership says whether this replica releases and watches.
	Leadership *leadership.Election
	// Events takes an Event for each release, and for each delay before one.
	Events events.EventRecorder
	// Audit takes a record of each lock that was released. Nil discards the records.
	Audit audit.Sink
	// Kinds are the kinds of objects that locks may be held for. Those of a lock of another kind
	// are not looked for: it ends with its ttl.
	Kinds holderref.Kinds
	// ReleasedElsewhere reports whether another controller releases the lock. Nil means that
	// none does.
	ReleasedElsewhere func(*v1alpha1.Lock) bool

	endedPods  client.Reader
	watches    *holderWatches
	reaper     reaper.Reaper
	disallowed disallowed
}

// +kubebuilder:rbac:groups=forrst.dev,resources=locks,verbs=get;list;watch;update;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile releases the lock if its holder has ended, and otherwise leaves it to the
// watch on the holder to enqueue the lock. The cached lock is enough to decide: the
// preconditions of each write fail if the lock was renewed, handed off or taken over since,
// and that change enqueues it again.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	released, err := r.reaper.Resolve(ctx, r.Client, request.NamespacedName, r.Clock.Now())
	if err != nil {
		return ctrl.Result{}, err
	}
	if released != nil {
		r.released(ctx, released, holderEnd{ref: *released.Spec.HolderRef, how: "has ended"}, true)
	}
	var lock v1alpha1.Lock
	// A lock that is gone has no holder.
	if err := client.IgnoreNotFound(r.Client.Get(ctx, request.NamespacedName, &lock)); err != nil {
		return ctrl.Result{}, err
	}
	isAllowed := lock.Spec.HolderRef == nil || r.Kinds.Has(lock.Spec.HolderRef)
	switch {
	case isAllowed:
		r.disallowed.forget(request.NamespacedName)
	case r.Leadership.IsLeader():
		r.disallowed.log(ctx, &lock)
	}
	if lock.Spec.HolderRef == nil || !isAllowed || !r.Leadership.IsLeader() ||
		r.ReleasedElsewhere != nil && r.ReleasedElsewhere(&lock) {
		r.watches.forget(request.NamespacedName)
		return ctrl.Result{RequeueAfter: r.reaper.RecheckAfter(request.NamespacedName)}, nil
	}
	return r.releaseIfEnded(ctx, &lock)
}

// releaseIfEnded releases the lock if its holder has ended, and otherwise watches the holder.
func (r *Reconciler) releaseIfEnded(ctx context.Context, lock *v1alpha1.Lock) (ctrl.Result, error) {
	name := client.ObjectKeyFromObject(lock)
	var err error
	end := holderEnd{ref: *lock.Spec.HolderRef}
	if end.how, err = r.howPodEnded(ctx, lock); err != nil {
		return ctrl.Result{}, err
	}
	if end.how == "" {
		of := holder{namespace: lock.Namespace, ref: end.ref}
		if young := r.untilWatched(lock); young > 0 && !r.watches.isObserved(of) {
			return ctrl.Result{RequeueAfter: young}, nil
		}
		end.how = r.watches.observe(name, of) // the watch outlives this reconcile
	}
	if end.how == "" {
		return ctrl.Result{}, nil
	}
	if rules.IsJob(&end.ref) {
		isLeft, err := jobs.AnyLive(ctx, r.LiveReader, lock.Namespace, end.ref.UID)
		if isLeft || err != nil {
			return ctrl.Result{RequeueAfter: podsPeriod}, err
		}
	}
	return r.releaseAfterDelay(ctx, lock, end)
}

func (r *Reconciler) untilWatched(lock *v1alpha1.Lock) time.Duration {
	if lock.Spec.AcquireTime == nil {
		return 0
	}
	// An acquireTime ahead of this clock must not lengthen the delay.
	return min(unwatchedAge, unwatchedAge-r.Clock.Since(lock.Spec.AcquireTime.Time))
}

// howPodEnded returns how the Pod that holds the lock has succeeded or failed, or "". The
// cache of ended Pods says whether it has, and a live read how.
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
	if err := r.LiveReader.Get(ctx, name, &pod); refusal.IsNotFound(err) || err == nil && pod.UID != ref.UID {
		return howDeleted, nil
	} else if err != nil {
		return "", fmt.Errorf("read the Pod that has ended: %w", err)
	}
	return holderref.HowEnded(&pod), nil
}

// releaseAfterDelay releases the lock at once, or when its releaseDelay is over. The start of
// the delay is recorded in the lock, where another replica finds it.
func (r *Reconciler) releaseAfterDelay(ctx context.Context, lock *v1alpha1.Lock, end holderEnd) (ctrl.Result, error) {
	if lock.Spec.ReleaseDelay != nil && (!servertime.HasHeard(r.Clock, servertime.FreshFor) || rules.IsStripped(lock)) {
		var live v1alpha1.Lock // Decoding into lock would keep the fields that the answer does not have.
		if err := r.LiveReader.Get(ctx, client.ObjectKeyFromObject(lock), &live); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		if live.ResourceVersion != lock.ResourceVersion {
			return ctrl.Result{RequeueAfter: time.Millisecond}, nil // The change is about to enqueue it.
		}
		lock = &live
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
	case reaper.HasChanged(err):
		return ctrl.Result{}, nil // If the lock still exists, its change enqueues it again.
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("record the end of the holder: %w", refusal.WithoutOwners(err, lock.Spec.Owner))
	}
	r.emit(lock, holderEndedReason, fmt.Sprintf("%s; the lock stays for %s", end, remaining))
	return ctrl.Result{RequeueAfter: remaining}, nil
}

func (r *Reconciler) release(ctx context.Context, lock *v1alpha1.Lock, end holderEnd) error {
	isDeleted, err := r.reaper.Delete(ctx, r.Client, lock, r.Clock.Now())
	if err != nil {
		return fmt.Errorf("release the lock of a holder that has ended: %w", err)
	}
	if isDeleted {
		r.released(ctx, lock, end, false)
	}
	return nil
}
