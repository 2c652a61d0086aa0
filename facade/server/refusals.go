package server

import (
	"net/http"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/network"
)

// Refusal is a call that a door has refused.
type Refusal struct {
	// Reason says why.
	Reason audit.Reason
	// Actor is the authenticated caller. Empty if the caller has no identity: then its network is on
	// record.
	Actor string
	// Namespace is that of the lock. Empty if the call was refused before it was known, or names none.
	Namespace string
	// Key is that of the lock that the call is about, as far as it is known.
	Key v1alpha1.FullKey
	// Operation is what the door calls it. Empty if it is not known.
	Operation string
	// Message is what the caller is told. It must contain no token.
	Message string
	// At is when the call was refused, on the clock of the locks.
	At time.Time
}

// Refusals records the calls that one door refuses: of callers that are not known, lack a right, do not
// hold the lock, or have used up their shares. It is safe for concurrent use.
type Refusals struct {
	door string
	sink audit.Sink
}

// Refusals returns what records the refusals of the door with the name.
func (s *Server) Refusals(door string) Refusals {
	return Refusals{door, audit.OrNowhere(s.options.Audit)}
}

// maxRefusedKey is the longest full key that a lock can have, without its prefix.
const maxRefusedKey = 2*v1alpha1.MaxKeyBytes + 1

// Record records a refusal of the request.
func (r Refusals) Record(request *http.Request, refused Refusal) {
	record := audit.Record{
		Schema: audit.Schema, Time: v1alpha1.NewTimestamp(refused.At), Event: audit.Refused, Reason: refused.Reason,
		Via: audit.Facade, Door: r.door, Actor: refused.Actor, Namespace: refused.Namespace,
		Operation: refused.Operation, Message: audit.Bounded(refused.Message),
	}
	if from := network.Of(request.RemoteAddr); refused.Actor == "" && from.IsValid() {
		record.Client = from.String()
	}
	// The key of a call that was refused need not be valid.
	if bare := refused.Key.Bare(); bare != "" && len(bare) <= maxRefusedKey {
		record.Lock, record.Key = refused.Key.ObjectName(), audit.Bounded(bare)
	}
	r.sink.Record(record)
}
