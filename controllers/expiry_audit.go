package controllers

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/engine"
)

// record records that the lock, as it stood before, was deleted.
func (r *ExpiryReconciler) record(expired *v1alpha1.Lock, isUnconfirmed bool) {
	record := audit.Ended(audit.Expired, audit.Reaped, audit.Controller, "", expired, r.Clock.Now())
	record.Unconfirmed = isUnconfirmed
	audit.OrNowhere(r.Audit).Record(record)
}

// deleted records a delete that was answered.
func (r *ExpiryReconciler) deleted(expired *v1alpha1.Lock) {
	r.unanswered.take(client.ObjectKeyFromObject(expired)) // the try before it did not happen
	r.record(expired, false)
}

// failed remembers a delete that may have happened.
func (r *ExpiryReconciler) failed(expired *v1alpha1.Lock, err error) {
	if engine.MayHaveHappened(err) {
		r.unanswered.put(expired)
	}
}

// settle records a delete that failed without telling whether it happened, once the
// cache tells. What stands under the name is empty if nothing does.
func (r *ExpiryReconciler) settle(name types.NamespacedName, uid types.UID, resourceVersion string) {
	tried := r.unanswered.take(name)
	switch {
	case tried == nil:
	case tried.UID != uid:
		r.record(tried, true)
	case tried.ResourceVersion == resourceVersion:
		r.unanswered.put(tried) // not yet known
	}
}

// unansweredReaps are locks whose deletion was tried and may have happened, one under
// each name at most. A failed deletion is tried again, which settles it. Its zero value is
// ready for use.
type unansweredReaps struct {
	mu    sync.Mutex
	locks map[types.NamespacedName]*v1alpha1.Lock
}

func (u *unansweredReaps) put(expired *v1alpha1.Lock) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.locks == nil {
		u.locks = map[types.NamespacedName]*v1alpha1.Lock{}
	}
	u.locks[client.ObjectKeyFromObject(expired)] = expired
}

func (u *unansweredReaps) take(name types.NamespacedName) *v1alpha1.Lock {
	u.mu.Lock()
	defer u.mu.Unlock()
	tried := u.locks[name]
	delete(u.locks, name)
	return tried
}
