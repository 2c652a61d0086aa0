package robustness_test

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// searchTimeout bounds the search for the orders of all keys together, besides the length of the run. It leaves the rest of a
// run its part of the 40 minutes that "make test" gives a package.
const searchTimeout = 5 * time.Minute

// check returns every violation of the promises of docs/design.md, section 17.
func (r *record) check(model model, artifacts string) []string {
	var violations []string
	for _, check := range r.checks() {
		violations = append(violations, check()...)
	}
	steps := r.steps()
	for _, key := range sortedKeys(r.unserved) {
		if err := r.write(key, steps[key], func(int) bool { return true }, artifacts); err != nil {
			violations = append(violations, fmt.Sprintf("wanted: %v", err))
		}
	}
	violations = append(violations, r.checkExclusion(steps, artifacts)...)
	return append(violations, r.checkOrder(model, steps, artifacts)...)
}

// checks are those that judge safety: how fast the machine is decides nothing about them. If it judges liveness, the record has
// those as well that tell what did not happen in time.
func (r *record) checks() []func() []string {
	safety := []func() []string{
		r.checkAnswers, r.checkStrangers, r.checkGrants, r.checkRenewals, r.checkReleases, r.checkHeld, r.checkReferences, r.checkJobs, r.checkAudit,
	}
	if !r.judgesLiveness {
		return safety
	}
	return append(safety, r.checkUnanswered, r.checkAbandoned, r.checkWanted, r.checkTimeouts, r.checkPassages,
		r.checkTold, r.checkRemains, r.checkUnaudited)
}

// checkOrder lets porcupine look for an order of the operations on each key.
func (r *record) checkOrder(model model, steps map[string][]porcupine.Operation, artifacts string) (violations []string) {
	timeout := r.end + searchTimeout
	until := time.Now().Add(timeout)
	for _, key := range sortedKeys(steps) {
		// Porcupine takes zero for no bound.
		result, info := porcupine.CheckOperationsVerbose(model.porcupine(), steps[key], max(time.Until(until), time.Millisecond))
		switch result {
		case porcupine.Ok:
		case porcupine.Unknown:
			if err := r.write(key, steps[key], func(int) bool { return true }, artifacts); err != nil {
				violations = append(violations, fmt.Sprintf("order: %v", err))
			}
			violations = append(violations, fmt.Sprintf("order: the checker did not finish the %d operations on %s within %s for all keys", len(steps[key]), key, timeout))
		case porcupine.Illegal:
			picture := filepath.Join(artifacts, "history-"+key+".html")
			if err := errors.Join(porcupine.VisualizePath(model.porcupine(), info, picture), r.explain(key, steps[key], info, artifacts)); err != nil {
				picture = err.Error()
			}
			violations = append(violations, fmt.Sprintf("order: no order of the %d operations on %s is that of a lock; see %s and the text beside it", len(steps[key]), key, picture))
		}
	}
	return violations
}

func sortedKeys[V any](values map[string]V) []string {
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// checkAnswers looks for answers that no client may get, and errors outside the protocol.
func (r *record) checkAnswers() (violations []string) {
	known := []outcome{done, held, timedOut, notFound, mismatch, refused, unanswered}
	for index := range r.operations {
		op := &r.operations[index]
		if op.isStranger {
			continue
		}
		switch {
		case !slices.Contains(known, op.outcome):
			violations = append(violations, "answers: unexpected: "+op.String())
		case op.outcome == refused && r.undisturbed(op.replica, span{op.sent, op.answered}, 0):
			violations = append(violations, "answers: refused although the API server refused nothing: "+op.String())
		}
	}
	return violations
}

// checkUnanswered looks for calls without an answer although requests got through, or were refused.
func (r *record) checkUnanswered() (violations []string) {
	for index := range r.operations {
		op := &r.operations[index]
		switch {
		case op.isStranger || op.outcome != unanswered || op.hungUp:
		case !r.hasLapsed(op) && !r.isUnproven(op) && r.undisturbed(op.replica, span{op.sent, op.answered}, aftermath):
			violations = append(violations, "answers: none although requests got through: "+op.String())
		case op.kind == acquire && r.isRefusing(op.replica, span{op.sent, op.answered}):
			violations = append(violations, "answers: the API server's refusal was told as an outage: "+op.String())
		}
	}
	return violations
}

// checkStrangers looks for answers to callers whose bearer token is not valid.
func (r *record) checkStrangers() (violations []string) {
	for index := range r.operations {
		if op := &r.operations[index]; op.isStranger && op.outcome != unauthenticated && op.outcome != unanswered {
			violations = append(violations, "answers: though the bearer token is not valid: "+op.String())
		}
	}
	return violations
}

// hasLapsed reports whether the grant to an acquire was over before the answer. Such a caller is told to try again. One that
// waited is told at once of a grant whose ttl nothing has used up.
func (r *record) hasLapsed(op *operation) bool {
	return op.kind == acquire && slices.ContainsFunc(r.byOwner[op.owner], func(grant *grant) bool {
		isOver := r.clock(grant.made.Spec.ExpireTime.Time) <= op.answered+stampError
		return isOver && (op.wait == 0 || r.disturbed(grant.from, op.answered))
	})
}

// isUnproven reports whether the replica may not have known, when an acquire ended, whether the lock
// was held: its clock was stepped, or its watch did not work and the wait was too short for a read.
// The caller is then told that the service is unavailable (docs/design.md, section 9.1).
func (r *record) isUnproven(op *operation) bool {
	isShort := 0 < op.wait && op.wait < boundOpen && !within(r.passages[op.replica].watching, span{op.sent, op.answered})
	return op.kind == acquire && (isShort || r.steppedDuring(op))
}

// stampError is by how much the stamp of a grant may be early beyond the allowance, besides
// half of the round trip: the date of the answer that corrects a clock has whole seconds
// (docs/design.md, section 11.2).
const stampError = 600 * time.Millisecond

// checkGrants compares the grants that clients were told of with those in etcd. A client
// counts on its ttl from the sending on.
func (r *record) checkGrants() (violations []string) {
	asked := map[string]*operation{}
	for index := range r.operations {
		op := &r.operations[index]
		if op.kind != acquire {
			continue
		}
		asked[op.owner] = op
		if op.outcome != done {
			continue
		}
		switch told := r.toldOf(op); {
		case told == nil:
			violations = append(violations, "grants: acquired, but etcd has no such grant: "+op.String())
		case op.token != 0 && op.token != told.token:
			violations = append(violations, fmt.Sprintf("grants: etcd's token is %d: %s", told.token, op))
		case r.clock(told.made.Spec.ExpireTime.Time)+r.skew < op.sent+op.ttl-stampError-(op.answered-op.sent)/2:
			violations = append(violations, fmt.Sprintf("grants: other callers may take the grant %d from %s on, while its holder counts on it: %s",
				told.token, r.clock(told.made.Spec.ExpireTime.Time)+r.skew, op))
		}
	}
	latest := map[string]int64{}
	for _, grant := range r.grants {
		op, ok := asked[grant.owner]
		if !r.isOfOtherDoor(grant) && (!ok || op.sent > grant.from || "lock:"+op.key != grant.key) {
			violations = append(violations, fmt.Sprintf("grants: no client asked for the grant %d of %s", grant.token, grant.key))
		}
		if grant.token <= latest[grant.key] {
			violations = append(violations, fmt.Sprintf("grants: the token %d of %s does not grow", grant.token, grant.key))
		}
		latest[grant.key] = grant.token
	}
	return violations
}

// isOfOtherDoor reports whether a program, or a client for a Pod or Job, asked for the grant.
func (r *record) isOfOtherDoor(made *grant) bool {
	return isHeldKey(made.key) || r.isForPod(made) || isForJob(made)
}

// checkRenewals checks that only its owner changes a grant: a failed acquire leaves the
// record of the holder untouched. A replica writes a renewal again if its clock was wrong. The
// clients of programs and of Pods renew by themselves.
func (r *record) checkRenewals() (violations []string) {
	sent := map[string]int{}
	for index := range r.operations {
		if op := &r.operations[index]; op.kind == renew {
			sent[op.owner]++
		}
	}
	for _, grant := range r.grants {
		if len(grant.renewals) > 2*sent[grant.owner] && !r.isOfOtherDoor(grant) {
			violations = append(violations, fmt.Sprintf("renewals: the expiry of the grant %d of %s moved %d times, its owner asked for %d",
				grant.token, grant.key, len(grant.renewals), sent[grant.owner]))
		}
	}
	return violations
}

// checkReleases counts how often an owner was told that it has released its lock: once for each of its grants, however many
// calls ask at once. What was asked without an answer may be credited with what another call has done, so such calls do not
// count.
func (r *record) checkReleases() (violations []string) {
	told := map[string][]*operation{}
	for index := range r.operations {
		op := &r.operations[index]
		if op.kind == release && op.outcome == done && !r.isCredited(op) {
			told[op.owner] = append(told[op.owner], op)
		}
	}
	for _, owner := range sortedKeys(told) {
		if releases := told[owner]; len(releases) > len(r.byOwner[owner]) {
			violations = append(violations, fmt.Sprintf("releases: of %d grants, released was told %d times: %s", len(r.byOwner[owner]), len(releases), releases[len(releases)-1]))
		}
	}
	return violations
}

// hold is a time in which a client is sure that it holds a lock.
type hold struct {
	op       *operation
	from, to time.Duration
	// granted is when etcd had the grant, which may be long before the client learnt of it.
	granted time.Duration
}

// checkExclusion compares the times in which clients are sure that they hold a lock. Such
// a time begins with the answer to the acquire. It ends when the client sends the release,
// or when the ttl has passed since the client sent the acquire or the latest renewal; see
// also [record.safeUntil]. The model finds the same and more; this check names the two
// clients.
func (r *record) checkExclusion(steps map[string][]porcupine.Operation, artifacts string) (violations []string) {
	for key, holds := range r.holds() {
		slices.SortFunc(holds, func(a, b *hold) int { return cmp.Compare(a.from, b.from) })
		for index, next := range holds {
			for _, earlier := range holds[:index] {
				// A release by force may have ended a hold before its client learnt of it.
				if next.from < min(next.to, earlier.to) {
					violations = append(violations, fmt.Sprintf("exclusion: two clients hold %s from %s to %s:\n\t\t%s\n\t\t%s",
						key, next.from, min(next.to, earlier.to), earlier.op, next.op))
					if err := r.write(key, steps[key], func(int) bool { return true }, artifacts); err != nil {
						violations = append(violations, fmt.Sprintf("exclusion: %v", err))
					}
				}
			}
		}
	}
	return violations
}

func (r *record) holds() map[string][]*hold {
	byKey, byOwner := map[string][]*hold{}, map[string]*hold{}
	for index := range r.operations {
		op := &r.operations[index]
		told := r.toldOf(op)
		if told == nil {
			continue
		}
		if taken := (&hold{op: op, from: op.answered, to: r.safeUntil(op, told), granted: min(told.from, op.answered)}); taken.from < taken.to {
			byKey[op.key], byOwner[op.owner] = append(byKey[op.key], taken), taken
		}
	}
	inOrder := slices.SortedFunc(slices.Values(r.operations), func(a, b operation) int { return cmp.Compare(a.sent, b.sent) })
	for _, op := range inOrder {
		if op.kind == forceRelease && (op.outcome != notFound || r.sawRepetition(&op)) {
			for _, ended := range byKey[op.key] {
				ended.endByForce(op)
			}
		}
		if taken := byOwner[op.owner]; taken != nil && op.sent < taken.to {
			taken.change(op)
		}
	}
	return byKey
}

func (h *hold) endByForce(op operation) {
	if h.granted <= op.answered {
		h.to = min(h.to, op.sent)
	}
}

// change applies an operation of the holder.
func (h *hold) change(op operation) {
	switch {
	case op.kind == release:
		h.to = op.sent
	case op.kind == renew && op.outcome == done:
		h.to = op.sent + op.ttl
	case op.kind == renew && (op.outcome == unanswered || op.outcome == notFound || op.outcome == mismatch):
		// It may have happened, and have made the time shorter.
		h.to = min(h.to, op.sent+op.ttl)
	}
}

const (
	// calm is how long requests must have got through for abandoned grants to be gone. A
	// replica retries every 5 s.
	calm = 6 * time.Second
	// hungUpEarly is how long before the grant a client must have hung up for a running
	// replica to know: an answer may already be on its way.
	hungUpEarly = 500 * time.Millisecond
)

// checkAbandoned looks for grants whose client was told that it has none, or had hung up.
// A replica must end them long before their ttl. A write that comes into effect after its ttl is no
// grant: others may take the lock.
func (r *record) checkAbandoned() (violations []string) {
	own := map[string]bool{}
	for index := range r.operations {
		if op := &r.operations[index]; op.kind == release && op.keepsToken {
			own[op.owner] = true
		}
	}
	for index := range r.operations {
		op := &r.operations[index]
		if op.kind != acquire || op.outcome == done || own[op.owner] {
			continue
		}
		for _, grant := range r.byOwner[op.owner] {
			if op.hungUp && (grant.from < op.answered+hungUpEarly || r.stopped(op.replica, span{op.answered, grant.from})) {
				continue
			}
			limit, ok := r.calmFor(calm, max(grant.from, op.answered), r.end)
			expires := r.clock(grant.last.Spec.ExpireTime.Time)
			if ok && min(grant.to, expires+r.skew) > limit && !r.killed(op.replica, span{op.sent, limit}) {
				violations = append(violations, fmt.Sprintf("abandoned: the grant %d of %s, which expires at %s, still existed at %s, and ended at %s:\n\t\t%s",
					grant.token, grant.from, expires, limit, grant.to, op))
			}
		}
	}
	return violations
}
