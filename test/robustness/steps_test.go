package robustness_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"forrst.dev/lock-operator/lock/audit"
)

// record is the record of a run, for the checks.
type record struct {
	*history

	grants []*grant
	// byOwner has the grants of each owner token. Each acquire has its own token, but a
	// replica may have sent more than one write for it.
	byOwner map[string][]*grant
	// after holds, by token, an instant before which the grant was not made.
	after map[int64]time.Duration
	// released is when each owner sent its first release that was not answered.
	released map[string]time.Duration
	end      time.Duration
	// skew is how wrong the clock of a replica may be.
	skew time.Duration
	// audited are the records of the audit of all replicas.
	audited []audit.Record
	// passages tell when requests of the replicas got through.
	passages []passage
	// unserved are the keys of locks beside which a caller waited for too long.
	unserved map[string]bool
	// isShared says that the replicas share their lines: any of them may have made the delete of a release.
	isShared bool
	// judgesLiveness is that of the options.
	judgesLiveness bool
}

func newRecord(history *history, grants []*grant, passages []passage, skew time.Duration) *record {
	r := &record{history: history, grants: grants, passages: passages, skew: skew, byOwner: map[string][]*grant{}, after: map[int64]time.Duration{}, released: map[string]time.Duration{}, unserved: map[string]bool{}, end: history.now()}
	for _, grant := range grants {
		r.byOwner[grant.owner] = append(r.byOwner[grant.owner], grant)
	}
	for index := range history.operations {
		op := &history.operations[index]
		if first, ok := r.released[op.owner]; op.kind == release && op.outcome == unanswered && (!ok || op.sent < first) {
			r.released[op.owner] = op.sent
		}
	}
	r.boundGrants()
	return r
}

// boundGrants finds out before which instant no grant was made: etcd made it after all grants with smaller
// tokens, and each of those after the client had sent its request. The model then need not try a caller who
// has waited for long in each of the places that it has waited through.
func (r *record) boundGrants() {
	sent := map[string]time.Duration{}
	for _, op := range r.operations {
		if first, ok := sent[op.owner]; op.kind == acquire && (!ok || op.sent < first) {
			sent[op.owner] = op.sent
		}
	}
	var last time.Duration
	for _, grant := range slices.SortedFunc(slices.Values(r.grants), func(a, b *grant) int { return cmp.Compare(a.token, b.token) }) {
		last = max(last, sent[grant.owner])
		r.after[grant.token] = last
	}
}

// steps returns the steps for the model, by key. It uses etcd's record in three ways, none
// of which can hide or invent a violation. A write that the record lacks did not take
// effect. A write in the record took effect before the journal saw it. A grant that no
// client was told of counts as well: the replica that made it may end it, and it must not
// replace a live grant.
func (r *record) steps() map[string][]porcupine.Operation {
	steps := map[string][]porcupine.Operation{}
	add := func(op *operation, step step) {
		if step.ret < step.call {
			return
		}
		if step.label == "" {
			step.label = op.String()
		}
		steps[op.key] = append(steps[op.key], porcupine.Operation{
			ClientId: op.client, Input: step, Call: int64(step.call), Return: int64(step.ret),
		})
	}
	for index := range r.operations {
		op := &r.operations[index]
		for _, step := range r.stepsOf(op) {
			add(op, step)
		}
	}
	return steps
}

func (r *record) stepsOf(op *operation) []step {
	plain := step{
		kind: op.kind, owner: op.owner, call: op.sent, ret: op.answered, ttl: op.ttl, freeAt: op.sent + op.ttl,
		outcome: op.outcome, token: op.token, holder: op.holder,
		lenient: r.isCredited(op),
	}
	switch {
	case op.kind == acquire:
		return r.acquireSteps(op, plain)
	case r.sawRepetition(op):
		plain.outcome = done
	case r.saysNothing(op, plain.lenient):
		return nil
	case op.kind == renew && (op.outcome == notFound || op.outcome == mismatch):
		return append(r.renewalsBefore(op, plain), plain)
	case op.outcome == unanswered:
		plain.ret = r.lastEnd(op)
	}
	return []step{plain}
}

// saysNothing reports whether the answer may tell of another instant than one of the call, or
// of no write.
func (r *record) saysNothing(op *operation, isLenient bool) bool {
	switch {
	case op.kind == status && (op.outcome == unanswered || op.outcome == notFound && isLenient):
		// A replica judges a status by the clock after reading it. A delayed answer may
		// therefore be out of date.
		return true
	case op.outcome == refused, op.outcome == unauthenticated, strings.HasPrefix(string(op.outcome), refusedWith):
		return true // It says that nothing was done.
	case op.kind == renew && op.outcome == unanswered && !slices.ContainsFunc(r.byOwner[op.owner], func(grant *grant) bool { return len(grant.renewals) > 0 }):
		return true
	case op.kind == release && op.outcome == unanswered && len(r.byOwner[op.owner]) == 1 && op.sent > r.released[op.owner]:
		// It can do nothing that the first one could not do at the same instant. A client that
		// repeats its release many times would otherwise leave too many orders to look at.
		return true
	}
	// The replica cannot know of a step between its read and its judgement.
	return op.outcome == notFound && r.steppedDuring(op)
}

// isCredited reports whether the replica may take what it finds for what the call has done: its request to the API server, or
// that of a release to the home of the line, may have had no answer. Of a release that was made alone, the latter changes
// nothing: nobody else has ended the grant of its owner.
func (r *record) isCredited(op *operation) bool {
	return r.disturbed(op.sent, op.answered) || r.isReleasedTwice(op) && slices.ContainsFunc(r.faults, func(fault window) bool {
		return slices.Contains(faultsOfHomes, fault.name) && fault.from <= op.answered && op.sent <= fault.to+aftermath
	})
}

// isReleasedTwice reports whether another call of the same owner asked for the same release during this one.
func (r *record) isReleasedTwice(op *operation) bool {
	return op.kind == release && slices.ContainsFunc(r.operations, func(other operation) bool {
		return other.kind == release && other.owner == op.owner && other.sent != op.sent && other.sent <= op.answered && op.sent <= other.answered
	})
}

// sawRepetition reports whether a release was told that the lock is not held although its own
// delete succeeded: the replica has seen only the answer to the repetition of that delete, see
// docs/design.md, section 8.1.
func (r *record) sawRepetition(op *operation) bool {
	isEnder := op.kind == release || op.kind == forceRelease
	return isEnder && (op.outcome == notFound || op.outcome == mismatch) && r.endedDuring(op) && r.repeatedDuring(op)
}

// endedDuring reports whether a grant that the release may end was ended during the call.
func (r *record) endedDuring(op *operation) bool {
	return slices.ContainsFunc(r.candidates(op), func(grant *grant) bool {
		return op.sent <= grant.to && grant.to <= op.answered+r.journalDelay()
	})
}

// renewalsBefore returns the renewals for the ttl of a call that etcd has from its time, although it was told
// that the lock is gone or another client's. A replica that gets no answer to its write repeats it, and by then
// the new expiry may have passed.
func (r *record) renewalsBefore(op *operation, plain step) (steps []step) {
	for _, grant := range r.byOwner[op.owner] {
		formerEnd := r.clock(grant.made.Spec.ExpireTime.Time)
		for _, renewal := range grant.renewals {
			isLate := renewal.seen+r.skew >= formerEnd
			formerEnd = renewal.seen + renewal.ttl
			if renewal.ttl != op.ttl || op.sent > renewal.seen || renewal.seen > op.answered+r.journalDelay() {
				continue
			}
			renewed := plain
			renewed.outcome, renewed.ret = done, renewal.seen
			renewed.label = "renewal before the answer of " + op.String()
			steps = append(steps, renewed)
			if isLate && renewal.seen < grant.to && grant.to <= op.answered+r.journalDelay() { // The replica ends a lock that it has renewed too late.
				ended := renewed
				ended.kind, ended.outcome, ended.ret = cleanup, unanswered, min(grant.to, r.end)
				ended.label = "end after the late " + renewed.label
				steps = append(steps, ended)
			}
		}
	}
	return steps
}

// repeatedDuring reports whether the proxy of the replica repeated deletes during the call.
func (r *record) repeatedDuring(op *operation) bool {
	return slices.ContainsFunc(r.faults, func(fault window) bool {
		return fault.name == repeatDeletes.name && (r.isShared || fault.replica == op.replica) && fault.from <= op.answered && op.sent <= fault.to
	})
}

// steppedDuring reports whether the clock of the replica was stepped during the call.
func (r *record) steppedDuring(op *operation) bool {
	return slices.ContainsFunc(r.faults, func(fault window) bool {
		isStep := fault.replica == op.replica && (fault.name == stepForward.name || fault.name == stepBack.name)
		isDuring := func(at time.Duration) bool { return op.sent <= at && at <= op.answered+r.journalDelay() }
		return isStep && (isDuring(fault.from) || isDuring(fault.to))
	})
}

// candidates returns the grants that a release may end.
func (r *record) candidates(op *operation) []*grant {
	if op.kind != forceRelease {
		return r.byOwner[op.owner]
	}
	return slices.DeleteFunc(slices.Clone(r.grants), func(grant *grant) bool { return grant.key != "lock:"+op.key })
}

// acquireSteps returns the grants that an acquire led to, whether or not its client learnt
// of them, and its refusal.
func (r *record) acquireSteps(op *operation, plain step) (steps []step) {
	told := r.toldOf(op)
	for _, grant := range r.byOwner[op.owner] {
		granted := plain
		granted.outcome, granted.token, granted.call, granted.ret = done, grant.token, max(op.sent, r.after[grant.token]), grant.from
		granted.freeAt = r.safeUntil(op, grant)
		if grant == told {
			granted.ret = min(op.answered, grant.from)
			steps = append(steps, granted)
			continue
		}
		granted.heldUntil = r.clock(grant.made.Spec.ExpireTime.Time)
		granted.label = fmt.Sprintf("grant %d that no client was told of, by %s", grant.token, op)
		ended := granted
		ended.kind, ended.outcome, ended.ret = cleanup, unanswered, min(grant.to, r.end)
		ended.label = fmt.Sprintf("end of the grant %d that no client was told of", grant.token)
		steps = append(steps, granted, ended)
	}
	if op.outcome == held || op.outcome == timedOut && !plain.lenient && r.isShown(op) {
		steps = append(steps, plain)
	}
	return steps
}

// isShown reports whether the watch of the replica, and of a home of its lines, showed the lock during the call. If not, they
// know only that the lock was held within the last seconds (docs/design.md, section 9.1).
func (r *record) isShown(op *operation) bool {
	for number, passage := range r.passages {
		if number != op.replica && !r.isShared {
			continue
		}
		during, since := span{op.sent, op.answered}, free{span: span{op.sent - boundUnseen, op.answered}}
		if !within(passage.watching, during) || passage.missed(op.key, since) {
			return false
		}
	}
	return true
}

// toldOf returns the grant that the client of an acquire was told of, or nil.
func (r *record) toldOf(op *operation) *grant {
	if op.kind != acquire || op.outcome != done {
		return nil
	}
	var told *grant
	for _, grant := range r.byOwner[op.owner] {
		if op.token == grant.token {
			return grant
		}
		if op.token == 0 && grant.from <= op.answered+r.journalDelay() {
			told = grant
		}
	}
	return told
}

// safeUntil returns the instant before which no other client may take the lock: the sending
// of the request plus the ttl. After a wait, the ttl begins with the end of the wait. The
// client cannot know that instant; the stamp of the replica tells it, up to the error of
// the replica's clock.
func (r *record) safeUntil(op *operation, grant *grant) time.Duration {
	until := op.sent + op.ttl
	if op.wait == 0 {
		return until
	}
	stamped := grant.made.Spec.ExpireTime.Sub(r.start.Round(0)) - r.skew
	return max(until, min(stamped, op.answered+op.ttl, grant.from+op.ttl))
}

// journalDelay bounds how much later than a client the journal may learn of a write. A run that does not judge how fast
// things are may run on a machine that is much busier.
func (r *record) journalDelay() time.Duration {
	if r.judgesLiveness {
		return 200 * time.Millisecond
	}
	return 5 * time.Second
}

// lastEnd returns the end of the last grant that an unanswered operation may have
// affected, or a negative time if no grant was.
func (r *record) lastEnd(op *operation) time.Duration {
	var last time.Duration = -1
	for _, grant := range r.candidates(op) {
		last = max(last, min(grant.to, r.end))
	}
	return last
}
