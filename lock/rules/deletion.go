package rules

import (
	"slices"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// namespaceController deletes the objects in a terminating namespace.
const namespaceController = "system:serviceaccount:kube-system:namespace-controller"

// MayEnd reports whether the user may delete the lock at any time: the holder may, and so may the
// namespace controller and the garbage collector, since a namespace must terminate and dependents
// must be deleted with their owners. Other users may once the lock has expired, see [Reclaim], or
// by force, see [ForceReason].
func MayEnd(lock *v1alpha1.Lock, user string) bool {
	return user == lock.Spec.Holder || user == namespaceController || slices.Contains(garbageCollectors, user)
}
