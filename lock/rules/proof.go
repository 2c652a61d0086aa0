package rules

import "forrst.dev/lock-operator/api/v1alpha1"

// Proof is what a caller shows to renew or to release a lock.
type Proof struct {
	// Owner is the owner token. Required.
	Owner string
	// Holder is the authenticated identity that shows the token. It has no right
	// to the lock of another holder, whatever token it knows. Empty means that the token is the whole
	// proof, as where admission judges the identity.
	Holder string
}

// Entitles reports whether the proof is one of a lock with this owner token and holder.
func (p Proof) Entitles(owner, holder string) bool {
	return p.Owner == owner && (p.Holder == "" || p.Holder == holder)
}

func (p Proof) entitlesTo(lock *v1alpha1.Lock) bool {
	return p.Entitles(lock.Spec.Owner, lock.Spec.Holder)
}
