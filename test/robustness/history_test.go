package robustness_test

import (
	"fmt"
	"slices"
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
	// unanswered: it may have happened, or happen later, or never. An answer that the
	// service is unavailable means the same.
	unanswered outcome = "unanswered"
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
	// tooLate says that the lock was granted and had expired before the answer.
	tooLate bool
	// hungUp says that the client ended the connection before there was an answer.
	hungUp bool
	// keepsToken says that the client itself releases an unanswered grant.
	keepsToken bool
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
	name     string
	from, to time.Duration
}

// history records the calls and faults of a run. Safe for concurrent use.
type history struct {
	start time.Time

	mu         sync.Mutex
	operations []operation
	faults     []window
}

// now is the time since the start of the run.
func (h *history) now() time.Duration { return time.Since(h.start) }

func (h *history) add(op operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, op)
}

func (h *history) addFault(fault window) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, fault)
}

// aftermath is how long a fault has effects after its repair: connections come back, and
// delayed requests arrive.
const aftermath = 3 * time.Second

// disturbed reports whether a fault was active in the span or shortly before.
func (h *history) disturbed(from, to time.Duration) bool {
	return slices.ContainsFunc(h.faults, func(fault window) bool { return fault.from <= to && from <= fault.to+aftermath })
}

// stopped reports whether a replica was stopped in the span or shortly before. It could
// not notice then that its clients had hung up.
func (h *history) stopped(from, to time.Duration) bool {
	return slices.ContainsFunc(h.faults, func(fault window) bool {
		return fault.name == stopReplica.name && fault.from <= to && from <= fault.to+aftermath
	})
}

// calmFor returns the first instant after which no fault was active, or had effects, for
// the given time, and false if the run ended before.
func (h *history) calmFor(calm, from, end time.Duration) (time.Duration, bool) {
	at := from
	for moved := true; moved; {
		moved = false
		for _, fault := range h.faults {
			if fault.from < at+calm && at < fault.to+aftermath {
				at, moved = fault.to+aftermath, true
			}
		}
	}
	return at + calm, at+calm <= end
}
