package rules

import (
	"slices"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// namespaceController deletes the objects in a terminating namespace.
const namespaceController = "system:serviceaccount:kube-system:namespace-controller"

// WithoutFinalizers returns the object to write before the lock is deleted, or nil if it has no
// finalizers. The write ends a lock that is being deleted already. Otherwise its delete may still
// fail, so it records the fencing token. It comes first, since the API server answers Conflict to a
// delete in the background that has a resourceVersion if the only finalizers are the garbage
// collector's.
func WithoutFinalizers(lock *v1alpha1.Lock) (*v1alpha1.Lock, error) {
	if len(lock.Finalizers) == 0 {
		return nil, nil // nothing is to be written
	}
	next := lock.DeepCopy()
	next.Finalizers = nil
	return next, recordToken(next, lock)
}

// MayEnd reports whether the user may delete the lock at any time: the holder may, and so may the
// namespace controller and the garbage collector, since a namespace must terminate and dependents
// must be deleted with their owners. Other users may once the lock has expired, see [Reclaim], or
// by force, see [ForceReason].
func MayEnd(lock *v1alpha1.Lock, user User) bool {
	return user.Holds(lock) || user.Name == namespaceController || slices.Contains(garbageCollectors, user.Name)
}
