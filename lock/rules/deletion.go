package rules

import (
	"slices"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// namespaceController deletes what a namespace holds that is being deleted.
const namespaceController = "system:serviceaccount:kube-system:namespace-controller"

// MayEnd reports whether the user may delete the lock at any time: as its holder, or as
// a part of Kubernetes that clears up, since a namespace has to terminate, and dependents
// go with their owners. Others may once it has expired, see [Reclaim], or by force, see
// [ForceReason].
func MayEnd(lock *v1alpha1.Lock, user string) bool {
	return user == lock.Spec.Holder || user == namespaceController || slices.Contains(garbageCollectors, user)
}
