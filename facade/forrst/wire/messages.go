package wire

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// AcquireArguments are the arguments of [Acquire].
type AcquireArguments struct {
	// Key is the key without scope and prefix. Required.
	Key string `json:"key"`
	// Scope is [FunctionScope] or [GlobalScope]. Empty means global.
	Scope string `json:"scope,omitempty"`
	// Function is what the key belongs to. Required with function scope, and only allowed there.
	Function string `json:"function,omitempty"`
	// TTL is how long the lock lives unless it is renewed or released. Nil means the default of the service.
	TTL *envelope.Duration `json:"ttl,omitempty"`
	// Block is how long to wait for the lock. Nil means not at all.
	Block *envelope.Duration `json:"block,omitempty"`
	// Priority orders those that wait for the lock, the highest first. One above 0 needs a right.
	Priority int32 `json:"priority,omitempty"`
	// Owner is the token that proves the acquisition. Empty means a new UUID v4.
	Owner string `json:"owner,omitempty"`
	// Reason tells people why the lock is held. Optional.
	Reason string `json:"reason,omitempty"`
	// HolderRef is the object that the lock is held for. Nil means the Pod whose token the caller shows, if it is one.
	HolderRef *HolderRef `json:"holder_ref,omitempty"`
	// ReleaseDelay is how long the lock stays after that object has ended. Nil means not at all.
	ReleaseDelay *envelope.Duration `json:"release_delay,omitempty"`
}

// KeyArguments are the arguments of functions about one lock.
type KeyArguments struct {
	// Key is the full key. Required.
	Key string `json:"key"`
	// Owner is the token of the acquisition. Only [Renew] and [Release] take it, and require it.
	Owner string `json:"owner,omitempty"`
	// FencingToken limits the call to the grant with this number. Zero means any grant. [Status] does not take it.
	FencingToken int64 `json:"fencing_token,omitempty"`
	// TTL replaces what is left of the lock's time. Nil means the ttl that it has. Only [Renew] takes it.
	TTL *envelope.Duration `json:"ttl,omitempty"`
	// Reason goes on record. Only [ForceRelease] takes it.
	Reason string `json:"reason,omitempty"`
}

// MaxListed is how many locks an answer of [List] has at most if it is asked for in parts.
const MaxListed = 500

// ListArguments are the arguments of [List].
type ListArguments struct {
	// Owner selects the locks that are held under this owner token. Empty selects all.
	Owner string `json:"owner,omitempty"`
	// Limit is the largest number of locks in the answer, at most [MaxListed]. Zero without Continue means all locks in one
	// answer, or an error if they are too many for that; with Continue it means MaxListed.
	Limit int64 `json:"limit,omitempty"`
	// Continue is that of the answer before. Empty asks for the first locks.
	Continue string `json:"continue,omitempty"`
}

// MaxWaiters is how many callers an answer of [ListWaiters] has at most.
const MaxWaiters = 500

// WaitersArguments are the arguments of [ListWaiters].
type WaitersArguments struct {
	// Key is the full key. Empty asks about all locks of the namespace.
	Key string `json:"key,omitempty"`
	// Limit is the largest number of callers in the answer, at most [MaxWaiters], which zero means too.
	Limit int64 `json:"limit,omitempty"`
}

// Lock describes a lock that is held.
type Lock struct {
	FullKey string `json:"full_key"` // "lock:{function}:{key}" or "lock:{key}", in NFC
	// Owner is the token that releases the lock. [List] leaves it out unless it was asked for the locks of that owner.
	Owner        string             `json:"owner,omitempty"`
	Scope        string             `json:"scope"`
	Function     string             `json:"function,omitempty"` // set with function scope
	Holder       string             `json:"holder"`             // the authenticated identity that acquired the lock
	Reason       string             `json:"reason,omitempty"`
	HolderRef    *HolderRef         `json:"holder_ref,omitempty"`    // the object that it is held for; nil if none is named
	ReleaseDelay *envelope.Duration `json:"release_delay,omitempty"` // how long the lock stays after that object has ended, if at all
	TTL          *envelope.Duration `json:"ttl,omitempty"`           // nil for a lock that a manifest holds until a fixed time
	AcquiredAt   string             `json:"acquired_at"`
	RenewedAt    string             `json:"renewed_at"`
	ExpiresAt    string             `json:"expires_at"`
	// FencingToken is the number of the grant. Nil if the lock is about to be deleted and its number is no longer known.
	FencingToken *int64 `json:"fencing_token,omitempty"`
}

// Acquired is the result of [Acquire].
type Acquired struct {
	Key      string `json:"key"`      // as sent
	Acquired bool   `json:"acquired"` // always true
	Lock
}

// AcquiredAll is the result of [AcquireAll].
type AcquiredAll struct {
	Acquired     bool         `json:"acquired"`      // always true
	Owner        string       `json:"owner"`         // the token of each of the locks
	FencingToken int64        `json:"fencing_token"` // the number of the last grant, which fences each of the locks
	ExpiresAt    string       `json:"expires_at"`    // when the first of the locks expires unless it is renewed
	Locks        []ListedLock `json:"locks"`         // ordered by their full keys
}

// Renewed is the result of [Renew].
type Renewed struct {
	Key     string `json:"key"`     // as sent
	Renewed bool   `json:"renewed"` // always true
	Lock
}

// Released is the result of [Release] and [ForceRelease].
type Released struct {
	Released bool   `json:"released"`         // always true
	Key      string `json:"key"`              // as sent
	Forced   bool   `json:"forced,omitempty"` // tells [ForceRelease] from [Release]
}

// State is the result of [Status].
type State struct {
	Key       string `json:"key"` // as sent
	Locked    bool   `json:"locked"`
	CheckedAt string `json:"checked_at"` // the time by the clock of the replica that answers
	// Expired says that the lock is not held any more, but its object still exists.
	Expired bool `json:"expired,omitempty"`
	// Lock is nil if Locked is false.
	*Lock
}

// Locks is the result of [List].
type Locks struct {
	Locks    []ListedLock `json:"locks"`              // ordered by the names of their objects
	Continue string       `json:"continue,omitempty"` // asks for the next locks; empty if there are none
}

// ListedLock is one lock of [Locks].
type ListedLock struct {
	Key string `json:"key"` // the key without scope and prefix
	Lock
}

// Waiters is the result of [ListWaiters].
type Waiters struct {
	// Waiters are in the order in which they get their lock; those of several locks are ordered by full key.
	Waiters []Waiter `json:"waiters"`
	More    bool     `json:"more,omitempty"` // others may wait after these
}

// Waiter is a caller that waits for a lock.
type Waiter struct {
	Key       string     `json:"key"`      // the key without scope and prefix
	FullKey   string     `json:"full_key"` // "lock:{function}:{key}" or "lock:{key}", in NFC
	Scope     string     `json:"scope"`
	Function  string     `json:"function,omitempty"` // set with function scope
	Place     int        `json:"place"`              // 1 for the caller that gets the lock next
	Priority  int32      `json:"priority,omitempty"` // that of its call
	Holder    string     `json:"holder"`             // the authenticated identity that waits, and Reason what for
	Reason    string     `json:"reason,omitempty"`
	HolderRef *HolderRef `json:"holder_ref,omitempty"` // the object that it wants the lock for; nil if none is named
	Door      string     `json:"door,omitempty"`       // how the caller came, forrst or rest; empty if that is not known
	Since     string     `json:"since"`                // when the caller came
	Until     string     `json:"until,omitempty"`      // when its wait ends; empty if only the caller ends it
}

// Fencing is the data of the entry [FencingURN].
type Fencing struct {
	// Token is the number of the grant: a later grant of a lock has a larger one.
	Token int64 `json:"token"`
}

// Lost is the data of the entry [LostURN]: the function inside a lock has outlived it, so that another holder may have held
// the lock at the same time.
type Lost struct {
	Key    string `json:"key"`    // as sent
	Reason string `json:"reason"` // one of the reasons below
}

// What became of a lock that a function has outlived.
const (
	LostExpired  = "expired"  // it ended by its ttl
	LostReleased = "released" // it was released by another caller, or ended unseen
	LostTaken    = "taken"    // it is held again, in another grant
	LostUnknown  = "unknown"  // its ttl has passed without an answer to a renewal
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
	Key     string          `json:"key"` // as sent
	Scope   string          `json:"scope"`
	FullKey string          `json:"full_key"`
	Waited  json.RawMessage `json:"waited,omitempty"` // the block option as sent; nil if the caller would not wait
	// Holder is the identity that acquired the lock. Empty if it changed hands so often that none was seen; ExpiresAt is then
	// empty too.
	Holder    string `json:"holder,omitempty"`
	ExpiresAt string `json:"expires_at,omitempty"`
	Expired   bool   `json:"expired,omitempty"` // the lock has no holder, but may not be taken over yet
	Waiting   *int   `json:"waiting,omitempty"` // how many callers wait for the lock; nil if that is not known at once
}

// KeyDetails are the details of LOCK_NOT_FOUND and LOCK_OWNERSHIP_MISMATCH.
type KeyDetails struct {
	Key string `json:"key"` // as sent
	// Expired says that the lock was held under the caller's owner token and has ended by its ttl. The functions of the
	// protocol do not tell.
	Expired bool `json:"expired,omitempty"`
}

// RefusedDetails are the details of LOCK_REFUSED.
type RefusedDetails struct {
	Key    string `json:"key"`    // as sent
	Reason string `json:"reason"` // what the API server says
}

// UnavailableDetails are the details of UNAVAILABLE and RATE_LIMITED.
type UnavailableDetails struct {
	RetryAfter envelope.Duration `json:"retry_after"`
	// NothingDone says that UNAVAILABLE was answered before anything was done. RATE_LIMITED always is. Without it, a release
	// may have happened, or happen yet.
	NothingDone bool `json:"nothing_done,omitempty"`
}
