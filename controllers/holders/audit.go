package holders

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
)

// Reasons and the action of Events about a lock whose holder has ended.
const (
	// holderEndedReason means that the lock remains held for its releaseDelay.
	holderEndedReason = "HolderEnded"
	// releasedReason means that the lock was released.
	releasedReason = "Released"
	releaseAction  = "Release"
)

// released reports that the lock, in its last state, was released.
func (r *Reconciler) released(ctx context.Context, ended *v1alpha1.Lock, end holderEnd, isUnconfirmed bool) {
	r.emit(ended, releasedReason, "Released the lock: "+end.String())
	record := audit.Ended(audit.Released, audit.HolderGone, audit.Controller, "", ended, r.Clock.Now())
	record.Message, record.Unconfirmed = audit.Bounded(end.String()), isUnconfirmed
	audit.OrNowhere(r.Audit).Record(record)
	logf.FromContext(ctx).V(1).Info("Released the Lock of a holder that has ended",
		"lock", klog.KObj(ended), "holder", ended.Spec.Holder, "end", end.String(), "unconfirmed", isUnconfirmed)
}

// emit records an Event with a note of at most the length that the API server accepts.
func (r *Reconciler) emit(lock *v1alpha1.Lock, reason, note string) {
	r.Events.Eventf(lock, related(lock), corev1.EventTypeNormal, reason, releaseAction, "%s", audit.Bounded(note))
}

// related returns the holder as the related object of Events.
func related(lock *v1alpha1.Lock) *corev1.ObjectReference {
	ref := lock.Spec.HolderRef
	return &corev1.ObjectReference{APIVersion: ref.APIVersion, Kind: ref.Kind, Namespace: lock.Namespace, Name: ref.Name, UID: ref.UID}
}
