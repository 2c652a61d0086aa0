package wire

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// Lock describes a lock that is held.
type Lock struct {
	// FullKey is "lock:{function}:{key}" or "lock:{key}", in NFC.
	FullKey string `json:"full_key"`
	// Owner is the token that releases the lock. [List] leaves it out unless it was asked for the locks of that owner.
	Owner string `json:"owner,omitempty"`
	Scope string `json:"scope"`
	// Function is set with function scope.
	Function string `json:"function,omitempty"`
	// Holder is the authenticated identity that acquired the lock.
	Holder string `json:"holder"`
	Reason string `json:"reason,omitempty"`
	// HolderRef is the object that the lock is held for. Nil if none is named.
	HolderRef *HolderRef `json:"holder_ref,omitempty"`
	// ReleaseDelay is how long the lock stays after that object has ended, if at all.
	ReleaseDelay *envelope.Duration `json:"release_delay,omitempty"`
	// TTL is nil for a lock that a manifest holds until a fixed time.
	TTL        *envelope.Duration `json:"ttl,omitempty"`
	AcquiredAt string             `json:"acquired_at"`
	RenewedAt  string             `json:"renewed_at"`
	ExpiresAt  string             `json:"expires_at"`
	// FencingToken is the number of the grant. Nil if the lock is about to be deleted and its number is no longer known.
	FencingToken *int64 `json:"fencing_token,omitempty"`
}

// Acquired is the result of [Acquire].
type Acquired struct {
	// Key is as sent.
	Key string `json:"key"`
	// Acquired is true.
	Acquired bool `json:"acquired"`
	Lock
}

// AcquiredAll is the result of [AcquireAll].
type AcquiredAll struct {
	// Acquired is true.
	Acquired bool `json:"acquired"`
	// Owner is the token of each of the locks.
	Owner string `json:"owner"`
	// FencingToken is the number of the last grant, which fences each of the locks.
	FencingToken int64 `json:"fencing_token"`
	// ExpiresAt is when the first of the locks expires unless it is renewed.
	ExpiresAt string `json:"expires_at"`
	// Locks are ordered by their full keys.
	Locks []ListedLock `json:"locks"`
}

// Renewed is the result of [Renew].
type Renewed struct {
	// Key is as sent.
	Key string `json:"key"`
	// Renewed is true.
	Renewed bool `json:"renewed"`
	Lock
}

// Released is the result of [Release] and [ForceRelease].
type Released struct {
	// Released is true.
	Released bool `json:"released"`
	// Key is as sent.
	Key string `json:"key"`
	// Forced tells [ForceRelease] from [Release].
	Forced bool `json:"forced,omitempty"`
}

// State is the result of [Status].
type State struct {
	// Key is as sent.
	Key    string `json:"key"`
	Locked bool   `json:"locked"`
	// CheckedAt is the time by the clock of the replica that answers.
	CheckedAt string `json:"checked_at"`
	// Expired says that the lock is not held any more, but its object still exists.
	Expired bool `json:"expired,omitempty"`
	// Lock is nil if Locked is false.
	*Lock
}

// Locks is the result of [List].
type Locks struct {
	// Locks are ordered by the names of their objects.
	Locks []ListedLock `json:"locks"`
	// Continue asks for the next locks. Empty if there are none.
	Continue string `json:"continue,omitempty"`
}

// ListedLock is one lock of [Locks].
type ListedLock struct {
	// Key is the key without scope and prefix.
	Key string `json:"key"`
	Lock
}

// Waiters is the result of [ListWaiters].
type Waiters struct {
	// Waiters are in the order in which they get their lock; those of several locks are ordered by full key.
	Waiters []Waiter `json:"waiters"`
	// More says that others may wait after these.
	More bool `json:"more,omitempty"`
}

// Waiter is a caller that waits for a lock.
type Waiter struct {
	// Key is the key without scope and prefix.
	Key string `json:"key"`
	// FullKey is "lock:{function}:{key}" or "lock:{key}", in NFC.
	FullKey string `json:"full_key"`
	Scope   string `json:"scope"`
	// Function is set with function scope.
	Function string `json:"function,omitempty"`
	// Place is 1 for the caller that gets the lock next.
	Place int `json:"place"`
	// Priority is that of its call.
	Priority int32 `json:"priority,omitempty"`
	// Holder is the authenticated identity that waits, and Reason what for.
	Holder string `json:"holder"`
	Reason string `json:"reason,omitempty"`
	// HolderRef is the object that it wants the lock for. Nil if none is named.
	HolderRef *HolderRef `json:"holder_ref,omitempty"`
	// Door is how the caller came: forrst or rest. Empty if that is not known.
	Door string `json:"door,omitempty"`
	// Since is when the caller came.
	Since string `json:"since"`
	// Until is when its wait ends. Empty if only the caller ends it.
	Until string `json:"until,omitempty"`
}

// Fencing is the data of the entry [FencingURN].
type Fencing struct {
	// Token is the number of the grant: a later grant of a lock has a larger one.
	Token int64 `json:"token"`
}

// Lost is the data of the entry [LostURN]: the function inside a lock has outlived it, so that another holder may have held
// the lock at the same time.
type Lost struct {
	// Key is as sent.
	Key string `json:"key"`
	// Reason is one of the reasons below.
	Reason string `json:"reason"`
}

// What became of a lock that a function has outlived.
const (
	// LostExpired means that it ended by its ttl.
	LostExpired = "expired"
	// LostReleased means that it was released by another caller, or ended unseen.
	LostReleased = "released"
	// LostTaken means that it is held again, in another grant.
	LostTaken = "taken"
	// LostUnknown means that its ttl has passed without an answer to a renewal.
	LostUnknown = "unknown"
)

// HolderRef names the object, in the namespace of a lock, that the lock is held for. Every member is required.
type HolderRef struct {
	APIVersion string `json:"api_version"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
}

// NewHolderRef returns nil for nil.
func NewHolderRef(ref *v1alpha1.HolderReference) *HolderRef {
	if ref == nil {
		return nil
	}
	return &HolderRef{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: string(ref.UID)}
}

// Reference returns nil for nil.
func (r *HolderRef) Reference() *v1alpha1.HolderReference {
	if r == nil {
		return nil
	}
	return &v1alpha1.HolderReference{APIVersion: r.APIVersion, Kind: r.Kind, Name: r.Name, UID: types.UID(r.UID)}
}

// HeldDetails are the details of LOCK_ACQUISITION_FAILED and LOCK_TIMEOUT. Those of the atomic lock extension have neither
// holder nor time, nor how many wait.
type HeldDetails struct {
	// Key is as sent.
	Key     string `json:"key"`
	Scope   string `json:"scope"`
	FullKey string `json:"full_key"`
	// Waited is the block option as sent. Nil if the caller would not wait.
	Waited json.RawMessage `json:"waited,omitempty"`
	// Holder is the identity that acquired the lock. Empty if it changed hands so often that none was seen; ExpiresAt is then
	// empty too.
	Holder    string `json:"holder,omitempty"`
	ExpiresAt string `json:"expires_at,omitempty"`
	// Expired says that the lock has no holder, but may not be taken over yet.
	Expired bool `json:"expired,omitempty"`
	// Waiting is how many callers wait for the lock. Nil if that is not known at once.
	Waiting *int `json:"waiting,omitempty"`
}

// KeyDetails are the details of LOCK_NOT_FOUND and LOCK_OWNERSHIP_MISMATCH.
type KeyDetails struct {
	// Key is as sent.
	Key string `json:"key"`
	// Expired says that the lock was held under the caller's owner token and has ended by its ttl. The functions of the
	// protocol do not tell.
	Expired bool `json:"expired,omitempty"`
}

// RefusedDetails are the details of LOCK_REFUSED.
type RefusedDetails struct {
	// Key is as sent.
	Key string `json:"key"`
	// Reason is what the API server says.
	Reason string `json:"reason"`
}

// UnavailableDetails are the details of UNAVAILABLE and RATE_LIMITED.
type UnavailableDetails struct {
	RetryAfter envelope.Duration `json:"retry_after"`
	// NothingDone says that UNAVAILABLE was answered before anything was done. RATE_LIMITED always is. Without it, a release
	// may have happened, or happen yet.
	NothingDone bool `json:"nothing_done,omitempty"`
}
