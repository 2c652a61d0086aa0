package wire

import "forrst.dev/lock-operator/facade/forrst/envelope"

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
