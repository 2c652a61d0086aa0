package wire

// LostURN names the response entry that carries a [Lost].
const LostURN = "urn:k8s:forrst:ext:lock-lost"

// FencingHeader carries the number of the grant to the service that a function inside a
// lock runs in, where a guarded resource can check it.
const FencingHeader = "Forrst-Fencing-Token"

// Lost is the data of the entry [LostURN]: the function inside a lock has outlived it, so
// that another holder may have held the lock at the same time.
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
