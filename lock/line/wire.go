package line

import (
	"encoding/json"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// streamMethod is the only method of the service.
const streamMethod = "/forrst.dev.line.v1.Line/Stream"

// question is what a replica asks the home of a line.
type question struct {
	// ID numbers the questions of one stream. An answer repeats it.
	ID   uint64 `json:"id,omitempty"`
	Kind kind   `json:"kind"`
	// Namespace is that of the lock.
	Namespace string `json:"namespace,omitempty"`
	// Acquisition is the request of a caller that waits.
	Acquisition *rules.Acquisition `json:"acquisition,omitempty"`
	// Came is when the caller came, and Sent when the question was sent, on a clock of the sender that begins
	// anywhere. Stood is since when the caller has its place, if IsAccepted says that another replica has let it
	// wait.
	Came       time.Duration `json:"came,omitempty"`
	Sent       time.Duration `json:"sent,omitempty"`
	Stood      time.Duration `json:"stood,omitempty"`
	IsAccepted bool          `json:"isAccepted,omitempty"`
	// IsMoving says that the caller which leaves takes its place to another home.
	IsMoving bool `json:"isMoving,omitempty"`
	// Priority is that of the caller, which its replica has authorized. A home of a version before it lets the caller
	// wait with 0.
	Priority int32 `json:"priority,omitempty"`
	// Wait is for how long it waits in all, and Door how it came.
	Wait time.Duration `json:"wait,omitempty"`
	Door string        `json:"door,omitempty"`
	// Trace is the W3C traceparent of the call that is traced.
	Trace string `json:"trace,omitempty"`
	// Token shows who the sender is, see [Identified].
	Token string `json:"token,omitempty"`
	// Limit is that of a question for waiters or lines, which has no Key if it is for all of the namespace.
	Limit int `json:"limit,omitempty"`
	// Key, Proof and User are those of a release, a hand-off or a renewal, TTL that of a renewal.
	Key   v1alpha1.FullKey `json:"key,omitempty"`
	Proof *lock.Proof      `json:"proof,omitempty"`
	User  string           `json:"user,omitempty"`
	// UID is that of the object that a release deletes.
	UID types.UID     `json:"uid,omitempty"`
	TTL time.Duration `json:"ttl,omitempty"`
}

// Identified is a message on a stream of a [Line] that may show who its sender is, anew: a stream outlasts the token that
// it was opened with. Package line neither sets nor reads that.
type Identified interface {
	// ShowToken adds a bearer token, and ShownToken returns it, or "".
	ShowToken(token string)
	ShownToken() string
}

var _ Identified = (*question)(nil)

// ShowToken implements [Identified].
func (q *question) ShowToken(token string) { q.Token = token }

// ShownToken implements [Identified].
func (q *question) ShownToken() string { return q.Token }

// kind is what a question asks for.
type kind string

const (
	// ping shows that the stream is alive.
	ping kind = "ping"
	// enlist lets a caller wait. It is answered when the caller is granted the lock, or never will be.
	enlist kind = "enlist"
	// take takes the lock that the caller of the same ID was offered. Only its answer makes the lock the caller's.
	take kind = "take"
	// leave takes the caller of the same ID out of the line, or gives back what it was offered.
	leave kind = "leave"
	// giveUp ends the wait of the caller of the same ID, unless a write for it is under way.
	giveUp kind = "giveUp"
	// release and renew are for locks that the home has granted.
	release kind = "release"
	renew   kind = "renew"
	// list asks for those that wait, and count how many they are.
	list  kind = "list"
	count kind = "count"
	// ending says which traced release of another replica is about to delete the lock that callers may wait for. It is
	// not answered.
	ending kind = "ending"
)

// answer is what the home answers.
type answer struct {
	ID     uint64 `json:"id,omitempty"`
	Result result `json:"result"`
	// Lock is the lock that was offered or renewed.
	Lock *v1alpha1.Lock `json:"lock,omitempty"`
	// HeldFor is for how much longer the lock that was taken is held, by the clock that has stamped it.
	HeldFor time.Duration `json:"heldFor,omitempty"`
	// Full says why the caller may not wait.
	Full *lock.LineFullError `json:"full,omitempty"`
	// IsUnsure says, when a wait has ended or its caller has left, that a write for it may have happened, or may still
	// happen, of which the home alone knows.
	IsUnsure bool `json:"isUnsure,omitempty"`
	// Held says who has the lock for which the wait has timed out, if that is known.
	Held *lock.HeldError `json:"held,omitempty"`
	// Waiters are those that a list asked for.
	Waiters []lock.Waiter `json:"waiters,omitempty"`
	// IsLost says, with a pong, that the replica has lost touch with the API server.
	IsLost bool `json:"isLost,omitempty"`
	// Stood is since when the caller has its place, and Sent when the answer was sent, on a clock of the home that begins
	// anywhere.
	Stood time.Duration `json:"stood,omitempty"`
	Sent  time.Duration `json:"sent,omitempty"`
	// Lines are those that a count asked for.
	Lines []lock.Line `json:"lines,omitempty"`
	// IsPart says that there are more.
	IsPart bool `json:"isPart,omitempty"`
}

// result is how a question was answered.
type result string

const (
	// pong answers a ping.
	pong result = "pong"
	// offered says that the lock is granted, and the caller's if its replica takes it. If the stream breaks
	// before, the home gives the lock to the next caller.
	offered result = "offered"
	// done says that the caller has the lock, or that it is released.
	done result = "done"
	// unknown says that the release or the renewal may have happened.
	unknown result = "unknown"
	// placed says that the caller has taken up the place of a former call. Its outcome follows.
	placed result = "placed"
	// renewed says that another call of the same request has the lock, see [lock.ErrFoundElsewhere]: this one is over.
	renewed result = "renewed"
	// left says that the caller of a question to leave is out of the line.
	left result = "left"
	// full says that too many callers wait.
	full result = "full"
	// unavailable says that the API server has not answered the home for too long. It may answer the asking
	// replica.
	unavailable result = "unavailable"
	// timedOut says that the caller was taken out of the line after its question to give up.
	timedOut result = "timedOut"
	// declined says that the home has done nothing, and that the asking replica finds out why by itself.
	declined result = "declined"
	// leaving says that the home cannot serve the line, or not any more. It answers a ping, too, and comes
	// unasked when the home begins to stop.
	leaving result = "leaving"
)

// codec encodes questions and answers for gRPC.
type codec struct{}

var _ encoding.Codec = codec{}

// Marshal implements [encoding.Codec].
func (codec) Marshal(value any) ([]byte, error) { return json.Marshal(value) }

// Unmarshal implements [encoding.Codec].
func (codec) Unmarshal(data []byte, into any) error { return json.Unmarshal(data, into) }

// Name implements [encoding.Codec].
func (codec) Name() string { return "forrst-line" }

// streamDescription describes the service to gRPC.
var streamDescription = grpc.StreamDesc{StreamName: "Stream", ServerStreams: true, ClientStreams: true}
