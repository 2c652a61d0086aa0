package wire

// LostURN names the response entry that carries a [Lost].
const LostURN = "urn:k8s:forrst:ext:lock-lost"

// Headers that tell the service of a function what the façade knows of the call, besides
// [NamespaceHeader]. Texts are percent-encoded but for visible ASCII.
const (
	// CallerHeader is the authenticated identity of the caller.
	CallerHeader = "Forrst-Caller"
	// FullKeyHeader is the full key of the lock around the function, if there is one.
	FullKeyHeader = "Forrst-Full-Key"
	// FencingHeader is the number of its grant, which a guarded resource can check. Numbers
	// compare within one namespace and full key only.
	FencingHeader = "Forrst-Fencing-Token"
)

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
