package robustness_test

import (
	"fmt"
	"sync"
	"time"
)

// kind is what a client asked for.
type kind string

const (
	acquire      kind = "acquire"
	renew        kind = "renew"
	release      kind = "release"
	forceRelease kind = "force release"
	status       kind = "status"
)

// outcome is what a client knows after the call.
type outcome string

const (
	// done: it happened, between sending and answer.
	done outcome = "done"
	// held: the lock was not acquired, because it has a holder.
	held outcome = "held"
	// timedOut: the same, after waiting.
	timedOut outcome = "timed out"
	// notFound: the lock has no holder.
	notFound outcome = "not found"
	// mismatch: the lock has another holder.
	mismatch outcome = "mismatch"
	// refused: the cluster refuses it, and it did not happen.
	refused outcome = "refused"
	// unauthenticated: the bearer token is not valid, and it did not happen.
	unauthenticated outcome = "unauthenticated"
	// unanswered: it may have happened, or happen later, or never. An answer that the
	// service is unavailable means the same.
	unanswered outcome = "unanswered"
	// refusedWith begins the outcome of any other error, which says that nothing was done.
	refusedWith = "refused with "
)

// operation is one call, as its client saw it. Times count from the start of the run, on
// the monotonic clock of the process that all clients share.
type operation struct {
	client, replica int
	kind            kind
	key, owner      string
	// ttl belongs to an acquire or a renewal, wait to an acquire.
	ttl, wait      time.Duration
	sent, answered time.Duration
	outcome        outcome
	// token is the fencing token in the answer, or zero.
	token int64
	// holder is the owner that a status names.
	holder string
	// hungUp says that the client ended the connection before there was an answer.
	hungUp bool
	// keepsToken says that the client itself releases an unanswered grant.
	keepsToken bool
	// proof is the owner token that the call names if it is not its own owner: that of another
	// user, which must not be enough.
	proof string
	// isStranger says that the caller has no valid bearer token.
	isStranger bool
	// said is the answer in short, for readers of the report.
	said string
}

func (o *operation) String() string {
	text := fmt.Sprintf("client %d, replica %d, %s to %s: %s %s owner %s", o.client, o.replica,
		o.sent.Round(time.Microsecond), o.answered.Round(time.Microsecond), o.kind, o.key, short(o.owner))
	if o.ttl > 0 {
		text += fmt.Sprintf(" ttl %s", o.ttl)
	}
	if o.wait > 0 {
		text += fmt.Sprintf(" wait %s", o.wait)
	}
	text += fmt.Sprintf(" -> %s %s", o.outcome, o.said)
	if o.token > 0 {
		text += fmt.Sprintf(" token %d", o.token)
	}
	if o.holder != "" {
		text += " held by " + short(o.holder)
	}
	return text
}

// short returns the beginning of a token, enough to tell it from others.
func short(owner string) string { return owner[:min(len(owner), 8)] }

// window is a time in which a fault was active.
type window struct {
	name string
	// replica is the number of the one that it broke, if it broke one.
	replica int
	span
}

// history records the calls and faults of a run. Safe for concurrent use.
type history struct {
	start time.Time

	mu         sync.Mutex
	operations []operation
	beliefs    []belief
	tenures    []tenure
	jobs       []jobRun
	faults     []window
}

// now is the time since the start of the run.
func (h *history) now() time.Duration { return time.Since(h.start) }

// at is a time of the wall clock of this machine, in nanoseconds, as one since the start.
func (h *history) at(nanoseconds int64) time.Duration { return time.Unix(0, nanoseconds).Sub(h.start) }

func (h *history) add(op operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, op)
}

func (h *history) addBelief(taken belief) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beliefs = append(h.beliefs, taken)
}

func (h *history) addTenure(held tenure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tenures = append(h.tenures, held)
}

func (h *history) addJob(run jobRun) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.jobs = append(h.jobs, run)
}

func (h *history) addFault(fault window) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, fault)
}

// aftermath is how long a fault has effects after its repair: connections come back, and
// delayed requests arrive.
const aftermath = 3 * time.Second
