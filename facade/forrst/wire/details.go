package wire

import (
	"encoding/json"

	"forrst.dev/lock-operator/facade/forrst/envelope"
)

// HeldDetails are the details of LOCK_ACQUISITION_FAILED and LOCK_TIMEOUT. Those of
// the atomic lock extension have neither holder nor time, nor how many wait.
type HeldDetails struct {
	// Key is as sent.
	Key     string `json:"key"`
	Scope   string `json:"scope"`
	FullKey string `json:"full_key"`
	// Waited is the block option as sent. Nil if the caller would not wait.
	Waited json.RawMessage `json:"waited,omitempty"`
	// Holder is the identity that acquired the lock. Empty if it changed hands so
	// often that none was seen; ExpiresAt is then empty too.
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
	// Expired says that the lock was held under the caller's owner token and has ended
	// by its ttl. The functions of the protocol do not tell.
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
