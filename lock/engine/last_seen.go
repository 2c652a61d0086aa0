package engine

import (
	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// lastSeen is the newest state of a lock that the engine has seen.
type lastSeen struct {
	// lock is nil if the lock is free or unknown.
	lock *v1alpha1.Lock
	// version is the resourceVersion seen last; empty if none was.
	version string
	// isConfirmed says that the informer has shown the object too and will therefore report its
	// end.
	isConfirmed bool
	// lapsed is the resourceVersion of the last grant of this engine that expired before its caller
	// learnt of it. Since no client acts on it, it may be replaced without the skew allowance.
	lapsed string
}

// isLapsed reports whether that grant is the present state.
func (s *lastSeen) isLapsed() bool { return s.lock != nil && s.lock.ResourceVersion == s.lapsed }

// update stores a state unless a newer one is known, and reports whether it did.
func (s *lastSeen) update(change lock.Change, isConfirmed bool) bool {
	lock := change.Lock
	switch {
	case s.version == "" || rules.IsNewer(lock.ResourceVersion, s.version):
	case s.lock != nil && s.lock.UID == lock.UID && lock.ResourceVersion == s.version:
		// The same state again, or its end if the informer missed the event.
		isConfirmed = isConfirmed || s.isConfirmed
	default:
		if change.IsGone {
			// The informer reports the end of an older object: it may have missed this one.
			s.isConfirmed = false
		}
		return false
	}
	*s = lastSeen{lock: lock, version: lock.ResourceVersion, isConfirmed: isConfirmed, lapsed: s.lapsed}
	if change.IsGone {
		s.lock = nil
	}
	return true
}
