package lockevents

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/rules"
)

// Reasons of the Events.
const (
	// ReasonExpired means that an expired lock was deleted: its holder neither renewed nor released it.
	ReasonExpired = "Expired"
	// ReasonTakenOver means that another holder has acquired an expired lock.
	ReasonTakenOver = "TakenOver"
	// ReasonWaitingLong means that callers have waited for long for one holder.
	ReasonWaitingLong = "WaitingLong"
	// ReasonRenewalEnded means that the operator renews a held lock no longer, since it has done so for as long
	// as the namespace allows.
	ReasonRenewalEnded = "RenewalEnded"
)

// Actions of the Events.
const (
	actionDelete   = "Delete"
	actionTakeOver = "TakeOver"
	actionWait     = "Wait"
	actionRenew    = "Renew"
)

// Reporter makes Events about locks. None has an owner token. It is safe for concurrent use; a nil Reporter
// makes none.
type Reporter struct {
	// Recorder takes the Events, usually a [Bounded] one. Required.
	Recorder events.EventRecorder
}

// Expired reports that the expired lock was deleted.
func (r *Reporter) Expired(lock *v1alpha1.Lock) {
	r.emit(lock, corev1.EventTypeWarning, ReasonExpired, actionDelete, fmt.Sprintf("%s expired at %s and was deleted: %s",
		held(lock), clockTime(lock.Spec.ExpireTime), whyExpired(lock)))
}

// Changed reports a take-over, if the lock has changed by one. Both are states of it that an informer has shown.
// Where it has missed states in between, a hand-off may be reported.
func (r *Reporter) Changed(before, after *v1alpha1.Lock) {
	if !isTakeOver(before, after) {
		return
	}
	r.emit(after, corev1.EventTypeWarning, ReasonTakenOver, actionTakeOver, fmt.Sprintf("%s expired at %s and was taken over by %q: %s",
		held(before), clockTime(before.Spec.ExpireTime), after.Spec.Holder, whyExpired(before)))
}

// RenewalEnded reports that the operator does not renew the held lock any more.
func (r *Reporter) RenewalEnded(lock *v1alpha1.Lock) {
	r.emit(lock, corev1.EventTypeWarning, ReasonRenewalEnded, actionRenew, fmt.Sprintf("%s expires at %s: lock-operator renews it no more, since it has done so for as long as its namespace allows",
		held(lock), clockTime(lock.Spec.ExpireTime)))
}

func whyExpired(lock *v1alpha1.Lock) string {
	if lock.Spec.RenewalPolicy == v1alpha1.RenewalByOperator {
		return "lock-operator could not renew it in time, or may renew it no more"
	}
	return "its holder neither renewed nor released it"
}

// isTakeOver reports whether the lock was granted anew after it had expired. A lock of the same name that was
// created since has another UID.
func isTakeOver(before, after *v1alpha1.Lock) bool {
	return before.UID == after.UID && after.Spec.AcquireTime != nil && !before.Spec.AcquireTime.Equal(after.Spec.AcquireTime) &&
		rules.Expired(before, after.Spec.AcquireTime.Time)
}

// waitingLong reports that so many callers wait for the lock, and that some have for so long.
func (r *Reporter) waitingLong(lock *v1alpha1.Lock, callers int, since time.Duration) {
	note := fmt.Sprintf("Callers have waited for %s for %s, now %d of them in one line; it is held since %s",
		held(lock), since.Round(time.Second), callers, clockTime(lock.Spec.AcquireTime))
	if lock.Spec.Reason != "" {
		note += ": " + lock.Spec.Reason
	}
	r.emit(lock, corev1.EventTypeNormal, ReasonWaitingLong, actionWait, note)
}

func (r *Reporter) emit(lock *v1alpha1.Lock, kind, reason, action, note string) {
	if r == nil {
		return
	}
	regarding := &v1alpha1.Lock{}
	regarding.Namespace, regarding.Name, regarding.UID = lock.Namespace, lock.Name, lock.UID
	r.Recorder.Eventf(regarding, nil, kind, reason, action, "%s", audit.Bounded(note)) // The bound of a note is the same.
}

func held(lock *v1alpha1.Lock) string {
	return fmt.Sprintf("%s, held by %q,", lock.Spec.FullKey(), lock.Spec.Holder)
}

func clockTime(at *v1alpha1.Timestamp) string {
	if at == nil {
		return "an unknown time"
	}
	return at.UTC().Format(time.RFC3339)
}
