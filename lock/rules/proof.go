package rules

import "forrst.dev/lock-operator/api/v1alpha1"

// Proof proves that a caller may renew or release a lock.
type Proof struct {
	// Owner is the owner token. Required.
	Owner string
	// Holder is the authenticated identity of the caller. It has no right to the lock of another
	// holder, even with the owner token. Empty means that the owner token suffices, as for engines
	// whose writes admission checks.
	Holder string
	// IsUnrenewed limits the proof to a lock that has not been renewed since its grant: its holder
	// may not know of the grant yet.
	IsUnrenewed bool
}

// Entitles reports whether the proof permits renewing and releasing a lock with this owner token
// and holder.
func (p Proof) Entitles(owner, holder string) bool {
	return p.Owner == owner && (p.Holder == "" || p.Holder == holder)
}

// IsRenewed reports whether the lock has been renewed since its grant, so its holder knows of it.
func IsRenewed(lock *v1alpha1.Lock) bool {
	return !lock.Spec.RenewTime.Equal(lock.Spec.AcquireTime)
}

func (p Proof) entitlesTo(lock *v1alpha1.Lock) bool {
	return p.Entitles(lock.Spec.Owner, lock.Spec.Holder)
}
