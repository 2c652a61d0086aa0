package rules

import (
	"slices"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// IsForeign reports whether the change, which was admitted as next, is one by another user to a lock
// that stays with its holder. Each of them moves the resourceVersion, so that a renewal or a release that
// is under way fails and has to be repeated: many of them would let the lock expire. Those of the garbage
// collector come to an end.
func (c Change) IsForeign(next *v1alpha1.Lock) bool {
	return !c.IsUnchanged && !c.User.Holds(c.Old) && !slices.Contains(garbageCollectors, c.User.Name) &&
		next.Spec.AcquireTime.Equal(c.Old.Spec.AcquireTime)
}
