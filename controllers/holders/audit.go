package holders

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/engine"
)

// Reasons and the action of Events about a lock whose holder has ended.
const (
	// holderEndedReason means that the lock stays for its releaseDelay.
	holderEndedReason = "HolderEnded"
	// releasedReason means that the lock was released.
	releasedReason = "Released"
	releaseAction  = "Release"
)

// released tells that the lock, as it stood before, was released.
func (r *Reconciler) released(ctx context.Context, ended *v1alpha1.Lock, end End, isUnconfirmed bool) {
	r.tell(ended, releasedReason, "Released the lock: "+end.String())
	record := audit.Ended(audit.Released, audit.HolderGone, audit.Controller, "", ended, r.Clock.Now())
	record.Message, record.Unconfirmed = audit.Bounded(end.String()), isUnconfirmed
	audit.OrNowhere(r.Audit).Record(record)
	logf.FromContext(ctx).V(1).Info("Released the Lock of a holder that has ended",
		"lock", klog.KObj(ended), "holder", ended.Spec.Holder, "end", end.String(), "unconfirmed", isUnconfirmed)
}

// tell has the Event say at most what the API server accepts in one.
func (r *Reconciler) tell(lock *v1alpha1.Lock, reason, note string) {
	r.Events.Eventf(lock, related(lock), corev1.EventTypeNormal, reason, releaseAction, "%s", audit.Bounded(note))
}

// failed remembers a release that may have happened.
func (r *Reconciler) failed(ended *v1alpha1.Lock, err error) {
	if engine.MayHaveHappened(err) {
		r.unanswered.Put(ended)
	}
}

// settle tells of a release that failed without telling whether it happened, once the
// cache tells. What stands under the name is empty if nothing does.
func (r *Reconciler) settle(ctx context.Context, name types.NamespacedName, current *v1alpha1.Lock) {
	tried := r.unanswered.Take(name)
	switch {
	case tried == nil:
	case tried.UID != current.UID:
		r.released(ctx, tried, End{Ref: *tried.Spec.HolderRef, How: "has ended"}, true)
	case tried.ResourceVersion == current.ResourceVersion:
		r.unanswered.Put(tried) // not yet known
	}
}

// related is the holder in the form of Events.
func related(lock *v1alpha1.Lock) *corev1.ObjectReference {
	ref := lock.Spec.HolderRef
	return &corev1.ObjectReference{APIVersion: ref.APIVersion, Kind: ref.Kind, Namespace: lock.Namespace, Name: ref.Name, UID: ref.UID}
}
