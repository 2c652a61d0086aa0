package robustness_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// record is what a run leaves to be judged.
type record struct {
	*history

	grants []*grant
	// byOwner are the grants under one owner token. Each acquire has a token of its own,
	// but a replica may have sent more than one write for it.
	byOwner map[string][]*grant
	end     time.Duration
	// skew is how wrong the clock of a replica may be.
	skew time.Duration
}

func newRecord(history *history, grants []*grant, skew time.Duration) *record {
	r := &record{history: history, grants: grants, skew: skew, byOwner: map[string][]*grant{}, end: history.now()}
	for _, grant := range grants {
		r.byOwner[grant.owner] = append(r.byOwner[grant.owner], grant)
	}
	return r
}

// steps returns what the model is asked about, by key. It uses etcd's record in three ways,
// none of which can hide or invent a violation: a write that is not there did not take
// effect; one that is there took effect before the journal saw it; and a grant that no
// client was told of is there all the same, may be ended by the replica that made it, and
// must not overlap another grant.
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
		outcome: op.outcome, token: op.token, holder: op.holder, lenient: r.disturbed(op.sent, op.answered),
	}
	switch {
	case op.kind == acquire:
		return r.acquireSteps(op, plain)
	case op.kind == status && (op.outcome == unanswered || op.outcome == notFound && plain.lenient):
		// A status is judged by the clock after it was read: it may be out of date where
		// its answer was held up.
		return nil
	case op.outcome == unanswered:
		plain.ret = r.lastEnd(op)
		return []step{plain}
	case op.outcome == done && op.kind != status:
		return []step{plain}
	}
	return []step{plain}
}

// acquireSteps are the grants that came of an acquire, whether or not its client learnt
// of them, and its refusal.
func (r *record) acquireSteps(op *operation, plain step) (steps []step) {
	told := r.toldOf(op)
	for _, grant := range r.byOwner[op.owner] {
		granted := plain
		granted.outcome, granted.token, granted.ret = done, grant.token, grant.from
		granted.freeAt = r.safeUntil(op, grant)
		if grant == told {
			granted.ret = min(op.answered, grant.from)
			steps = append(steps, granted)
			continue
		}
		granted.label = fmt.Sprintf("grant %d that no client was told of, by %s", grant.token, op)
		ended := granted
		ended.kind, ended.outcome, ended.ret = cleanup, unanswered, min(grant.to, r.end)
		ended.label = fmt.Sprintf("end of the grant %d that no client was told of", grant.token)
		steps = append(steps, granted, ended)
	}
	switch {
	case op.outcome == held, op.outcome == timedOut && !plain.lenient:
		steps = append(steps, plain)
	}
	return steps
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
		if op.token == 0 && grant.from <= op.answered+journalDelay {
			told = grant
		}
	}
	return told
}

// safeUntil returns until when no other caller may take a lock. It is the ttl after the request
// was sent; but the ttl of a lock that was waited for begins when the wait ends, which
// the client cannot tell, and the stamp of the replica can, up to the error of its clock.
func (r *record) safeUntil(op *operation, grant *grant) time.Duration {
	until := op.sent + op.ttl
	if op.wait == 0 {
		return until
	}
	stamped := grant.made.Spec.ExpireTime.Sub(r.start.Round(0)) - r.skew
	return max(until, min(stamped, op.answered+op.ttl, grant.from+op.ttl))
}

// journalDelay is how long after a client the journal may learn of a write.
const journalDelay = 200 * time.Millisecond

// lastEnd returns when the latest of the grants that an unanswered operation may have
// had an effect on was over. An operation without any returns before its call.
func (r *record) lastEnd(op *operation) time.Duration {
	candidates := r.byOwner[op.owner]
	if op.kind == forceRelease {
		candidates = slices.DeleteFunc(slices.Clone(r.grants), func(grant *grant) bool { return grant.key != "lock:"+op.key })
	}
	var last time.Duration = -1
	for _, grant := range candidates {
		last = max(last, min(grant.to, r.end))
	}
	return last
}
