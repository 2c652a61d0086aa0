package lock

import "forrst.dev/lock-operator/api/v1alpha1"

// ForcedRelease is a live lock that was ended by somebody else than its holder.
type ForcedRelease struct {
	// Lock is the lock as it was when its end was decided. It must not be modified.
	Lock *v1alpha1.Lock
	// User is the authenticated identity of whoever ended it. Empty if it is not known.
	User string
	// Reason is why. Empty if it was not said.
	Reason string
}
