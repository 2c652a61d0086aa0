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
	// HolderUID is the UID of that identity, see [User]. Empty if it has none.
	HolderUID string
	// IsUnrenewed limits the proof to a lock that has not been renewed since its grant: its holder
	// may not know of the grant yet.
	IsUnrenewed bool
	// FencingToken limits the proof to the grant with this number: a caller may acquire a lock again
	// under the same owner token, and a late request of the former grant must not count for the next.
	// Zero means any grant.
	FencingToken int64
	// Acquisition limits the proof to the grants of one acquisition, of which the tries may have been granted one after
	// the other: it is what their IDs share, see [SplitTry]. Empty means any.
	Acquisition string
	// Connection limits the proof to a lock that this connection of its holder holds. Empty means any, or none.
	Connection string
	// NextConnection is the connection that holds the lock from its renewal on. Empty means that the renewal leaves that as it
	// is. A release ignores it.
	NextConnection string
	// ResourceVersion limits the proof to a lock that is stored in this version. Empty means any.
	ResourceVersion string
}

// Precondition limits a forced release, which takes no [Proof], to what its caller has seen.
type Precondition struct {
	// FencingToken is the number of the grant that is to end. Zero means any grant.
	FencingToken int64
}

// isMetBy reports whether the lock is of the grant. One that is being deleted may have lost the number of its grant, and
// counts as of another: nothing else tells whose it is.
func (p Precondition) isMetBy(lock *v1alpha1.Lock) bool {
	if p.FencingToken == 0 {
		return true
	}
	token, err := lock.FencingToken()
	return err == nil && token == p.FencingToken
}

// IsRenewed reports whether the lock has been renewed since its grant, so its holder knows of it.
func IsRenewed(lock *v1alpha1.Lock) bool {
	return !lock.Spec.RenewTime.Equal(lock.Spec.AcquireTime)
}

// LimitedTo returns the proof for the grants of that acquisition alone which the lock records. If it records none, such
// as that of a call which did not wait, the proof is for that grant alone.
func (p Proof) LimitedTo(granted *v1alpha1.Lock) Proof {
	if p.FencingToken != 0 {
		return p
	}
	if p.Acquisition = acquisitionOf(granted); p.Acquisition == "" {
		p.FencingToken, _ = granted.FencingToken()
	}
	return p
}

func acquisitionOf(lock *v1alpha1.Lock) string {
	acquisition, _ := SplitTry(lock.Annotations[v1alpha1.AcquisitionAnnotation])
	return acquisition
}

// ConnectionOf returns the connection that holds the lock, or "".
func ConnectionOf(lock *v1alpha1.Lock) string { return lock.Annotations[v1alpha1.ConnectionAnnotation] }

// isOfOtherGrant reports whether the proof is limited to a grant, or a connection, that the lock does not record. A lock
// that is being deleted may have lost the number of its grant; the owner token decides then.
func (p Proof) isOfOtherGrant(lock *v1alpha1.Lock) bool {
	if p.Acquisition != "" && p.Acquisition != acquisitionOf(lock) || p.Connection != "" && p.Connection != ConnectionOf(lock) {
		return true
	}
	if p.FencingToken == 0 {
		return false
	}
	token, err := lock.FencingToken()
	return err == nil && token != p.FencingToken
}

// entitlesTo reports whether the proof permits renewing and releasing a lock with its owner token and
// holder.
func (p Proof) entitlesTo(lock *v1alpha1.Lock) bool {
	return p.Owner == lock.Spec.Owner && (p.Holder == "" || User{p.Holder, p.HolderUID}.Holds(lock))
}
