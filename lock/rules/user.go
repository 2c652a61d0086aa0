package rules

import "forrst.dev/lock-operator/api/v1alpha1"

// MaxHolderUIDBytes is the longest UID of a holder that a lock keeps, as the schema bounds it.
const MaxHolderUIDBytes = 256

// User is an authenticated user.
type User struct {
	// Name is the name of the user. Required.
	Name string
	// UID tells users apart that have had the same name, such as a service account that was deleted
	// and created again. Empty if the user has none, as with a client certificate.
	UID string
}

// Holds reports whether the user is the holder of the lock. The UID counts if user and lock have
// one: locks of earlier versions have none.
func (u User) Holds(lock *v1alpha1.Lock) bool { return u.is(lock.Spec.Holder, lock.Spec.HolderUID) }

func (u User) is(name, uid string) bool {
	return u.Name == name && (u.UID == "" || uid == "" || u.UID == uid)
}

// storedUID returns the UID as a lock keeps it: not at all if it is too long.
func storedUID(uid string) string {
	if len(uid) > MaxHolderUIDBytes {
		return ""
	}
	return uid
}
