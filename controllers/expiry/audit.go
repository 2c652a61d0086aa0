package expiry

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/engine"
)

// record records that the lock, as it stood before, was deleted.
func (r *Reconciler) record(expired *v1alpha1.Lock, isUnconfirmed bool) {
	record := audit.Ended(audit.Expired, audit.Reaped, audit.Controller, "", expired, r.Clock.Now())
	record.Unconfirmed = isUnconfirmed
	audit.OrNowhere(r.Audit).Record(record)
}

// deleted records a delete that was answered.
func (r *Reconciler) deleted(expired *v1alpha1.Lock) {
	r.unanswered.Take(client.ObjectKeyFromObject(expired)) // the try before it did not happen
	r.record(expired, false)
}

// failed remembers a delete that may have happened.
func (r *Reconciler) failed(expired *v1alpha1.Lock, err error) {
	if engine.MayHaveHappened(err) {
		r.unanswered.Put(expired)
	}
}

// settle records a delete that failed without telling whether it happened, once the
// cache tells. What stands under the name is empty if nothing does.
func (r *Reconciler) settle(name types.NamespacedName, uid types.UID, resourceVersion string) {
	tried := r.unanswered.Take(name)
	switch {
	case tried == nil:
	case tried.UID != uid:
		r.record(tried, true)
	case tried.ResourceVersion == resourceVersion:
		r.unanswered.Put(tried) // not yet known
	}
}
