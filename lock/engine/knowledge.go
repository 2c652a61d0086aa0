package engine

import (
	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// knowledge is the newest state of a lock that the engine has seen.
type knowledge struct {
	// lock is nil if the lock is free, or nothing is known of it.
	lock *v1alpha1.Lock
	// version is the resourceVersion that was seen last; empty if none was.
	version string
	// isConfirmed says that the informer has seen the object too and will therefore
	// tell of its end.
	isConfirmed bool
}

// learn takes in a state unless a newer one is known, and reports whether it did.
func (k *knowledge) learn(change lock.Change, isConfirmed bool) bool {
	lock := change.Lock
	switch {
	case k.version == "" || rules.IsNewer(lock.ResourceVersion, k.version):
	case k.lock != nil && k.lock.UID == lock.UID && lock.ResourceVersion == k.version:
		// The same state again, or its end if the informer has missed the event.
		isConfirmed = isConfirmed || k.isConfirmed
	default:
		if change.IsGone {
			// The informer has an older object in mind: it may have missed this one.
			k.isConfirmed = false
		}
		return false
	}
	*k = knowledge{lock: lock, version: lock.ResourceVersion, isConfirmed: isConfirmed}
	if change.IsGone {
		k.lock = nil
	}
	return true
}
