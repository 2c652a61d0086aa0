package robustness_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// Liveness: while callers wait for a lock, it is not free for long.
//
// # When a lock is free
//
// etcd's record tells. A lock is free from the write that deletes it until the write of the
// next grant, and from the end of its last ttl if it remains. Others may take such a lock
// only after the allowance, and a replica that has just been told the time waits for up to
// another second (docs/design.md, section 11.2); the lock counts as free after both.
//
// # When it is wanted
//
// A lock is wanted on a replica from the time at which a client sends a call that waits,
// until its wait ends, it is answered, or it hangs up.
//
// # When requests get through
//
// A replica can take a free lock only if its requests get through. Facts tell when they
// do, not the windows of faults: each replica creates and deletes an object of its own,
// several times a second, over the same connections (replica/prober.go). Requests get
// through from a probe that succeeds promptly until the last one before a probe that does
// not, except while a proxy withholds, delays or refuses a request, or resets connections.
// Faults of watches close nothing. A step of the clock divides the time: a replica measures
// pauses by the monotonic part of its readings, which no machine moves, but the faults do.
//
// A lock that is free while it is wanted on a replica whose requests get through, for
// longer than the bound without a break, is a violation.
//
// # Of replicas that share their lines
//
// The home of the line may be any replica. It takes a moment to find out that a home is gone
// or has lost touch, so the bound is longer. A home that gets some answers has not lost touch:
// while it waits for one that is late, its line waits, until its operation timeout. So it does
// while a step of the home's clock makes a pause longer.
const (
	// boundOpen holds whenever requests get through.
	boundOpen = 2 * time.Second
	// boundUnseen is boundOpen where an open watch may not have shown the end of the lock: nothing tells, and the lock is
	// read again every 5 s (docs/design.md, section 9.1).
	boundUnseen = 6 * time.Second
	// boundShared is boundOpen of replicas that share their lines: a line leaves a home that is silent for 1.8 s, or
	// whose requests have all failed for 1 s (docs/design.md, section 9.4).
	boundShared = 3 * time.Second
	// boundCalm holds on an idle machine if also no fault is active, the watch shows each
	// probe promptly, and the lock was released: for calmShare of such waits. A machine is
	// idle if the watch shows the same share of the probes without faults within idleShow of
	// their sending; a busier one multiplies the bound by as much as that is exceeded.
	boundCalm = 50 * time.Millisecond
	calmShare = 0.95
	idleShow  = 10 * time.Millisecond
	// timeoutBound is how long a lock may have been free at most when a caller is told that
	// it was held for too long: boundUnseen, and the time until a connection is given up. A replica whose requests do
	// not get through finds out by then, and says that the service is unavailable.
	timeoutBound = boundUnseen + 2*time.Second
	// minOpen is the share of the calm time in which requests must have got through, or
	// a run has not tested what it should.
	minOpen = 0.5
)

// class tells what is known about a wait beside a free lock.
type class string

const (
	// calmReleased and calmExpired: no fault was active, and the watch worked.
	calmReleased class = "calm, released"
	calmExpired  class = "calm, expired"
	// openReleased and openExpired: requests got through.
	openReleased class = "under faults, released"
	openExpired  class = "under faults, expired"
	// unseen: requests got through, but an open watch did not show the delete, or nothing in time.
	unseen class = "its end not shown"
)

var classes = []class{calmReleased, calmExpired, openReleased, openExpired, unseen}

// free is a time in which a lock had no holder.
type free struct {
	span
	// since says what ended the holder; hasExpired that it was its ttl.
	since      string
	hasExpired bool
}

// wanted is a time in which a lock was free, wanted on a replica, and could be taken by it.
type wanted struct {
	free
	key     string
	replica int
	class   class
}

// waits returns them all. It is what checkWanted judges and the report shows.
func (r *record) waits() (found []wanted) {
	frees, wants := r.frees(), r.wants()
	active := union(r.activeFaults())
	for _, key := range sortedKeys(wants) {
		for number, passage := range r.passages {
			possible := subtract(subtract(intersect(union(wants[key][number]), passage.open), r.clockSteps(number)), r.slowHomes())
			for _, lock := range frees[key] {
				for _, each := range intersect([]span{lock.span}, possible) {
					wait := wanted{free: lock, key: key, replica: number}
					wait.span = each
					isCalm := within(passage.watching, each) && len(intersect([]span{each}, active)) == 0
					switch {
					case r.isUnseen(number, key, lock, each):
						wait.class = unseen
					case isCalm && lock.hasExpired:
						wait.class = calmExpired
					case isCalm:
						wait.class = calmReleased
					case lock.hasExpired:
						wait.class = openExpired
					default:
						wait.class = openReleased
					}
					found = append(found, wait)
				}
			}
		}
	}
	return found
}

// missed reports whether the watch did not show the delete since which the lock was free.
func (p passage) missed(key string, since free) bool {
	name := v1alpha1.NewFullKey(v1alpha1.ScopeGlobal, "", key).ObjectName()
	return slices.ContainsFunc(p.lost[name], func(at time.Duration) bool {
		return (at-since.from).Abs() <= lossDelay || since.from <= at && at <= since.to
	})
}

// isUnseen reports whether the watch of the replica, or of a home of its lines, may have been open and not shown the end of
// the lock. One that is cut is known to be closed.
func (r *record) isUnseen(replica int, key string, since free, during span) bool {
	for number, passage := range r.passages {
		if number != replica && !r.isShared {
			continue
		}
		if passage.missed(key, since) || !within(union(slices.Concat(passage.watching, r.cuts(number))), during) {
			return true
		}
	}
	return false
}

// cuts returns when the watch of the replica was cut.
func (r *record) cuts(replica int) (cuts []span) {
	for _, fault := range r.faults {
		if fault.name == cutWatch.name && fault.replica == replica {
			cuts = append(cuts, fault.span)
		}
	}
	return cuts
}

// lossDelay bounds how far apart a proxy and the journal learn of a delete.
const lossDelay = time.Second

func (r *record) activeFaults() (active []span) {
	for _, fault := range r.faults {
		active = append(active, fault.span)
	}
	return active
}

// slowHomes returns when the home of a line may have waited for an answer that was late or lost, while it got others,
// or for a pause that had become longer with a step of its clock.
func (r *record) slowHomes() (slow []span) {
	faults := []string{loseReplies.name, delayRequests.name, writeLate.name, stepForward.name, stepBack.name, stepLittle.name}
	for _, fault := range r.faults {
		if r.isShared && slices.Contains(faults, fault.name) {
			slow = append(slow, span{fault.from, fault.to + lock.OperationTimeout})
		}
	}
	return union(slow)
}

// clockSteps returns the instants at which the clock of the replica was stepped.
func (r *record) clockSteps(replica int) (steps []span) {
	for _, fault := range r.faults {
		if fault.replica == replica && slices.Contains([]string{stepForward.name, stepBack.name, stepLittle.name}, fault.name) {
			steps = append(steps, span{fault.from, fault.from}, span{fault.to, fault.to})
		}
	}
	return union(steps)
}

// frees returns when each lock was free. Times at which the journal learnt of a write make
// these spans shorter at their beginning; the answer to the next holder ends them earlier
// than the journal does.
func (r *record) frees() map[string][]free {
	told := map[int64]time.Duration{}
	for index := range r.operations {
		op := &r.operations[index]
		if grant := r.toldOf(op); grant != nil {
			told[grant.token] = op.answered
		}
	}
	byKey := map[string][]*grant{}
	for _, grant := range r.grants {
		key := strings.TrimPrefix(grant.key, "lock:")
		byKey[key] = append(byKey[key], grant)
	}
	frees := map[string][]free{}
	for key, grants := range byKey {
		current := free{since: "has not been held"}
		for _, grant := range append(grants, nil) {
			current.to = r.end
			if grant != nil {
				current.to = grant.from
				if answered, ok := told[grant.token]; ok {
					current.to = min(grant.from, answered)
				}
			}
			if current.from < current.to {
				frees[key] = append(frees[key], current)
			}
			if grant == nil {
				break
			}
			current = free{span: span{from: grant.to}, since: fmt.Sprintf("grant %d was ended", grant.token)}
			if takeable := r.clock(grant.last.Spec.ExpireTime.Time) + r.skew + time.Second; takeable < grant.to {
				// A clock that was stepped may have stamped it as if it had expired before it was made.
				current = free{span{from: max(takeable, grant.from)}, fmt.Sprintf("grant %d expired", grant.token), true}
			}
		}
	}
	for key := range r.wants() {
		if frees[key] == nil {
			frees[key] = []free{{span: span{to: r.end}, since: "has not been held"}}
		}
	}
	return frees
}

// wants returns when each lock was wanted, by key and replica.
func (r *record) wants() map[string][][]span {
	wants := map[string][][]span{}
	for index := range r.operations {
		op := &r.operations[index]
		if op.kind != acquire || op.wait == 0 {
			continue
		}
		if wants[op.key] == nil {
			wants[op.key] = make([][]span, len(r.passages))
		}
		of := &wants[op.key][op.replica]
		*of = append(*of, span{op.sent, min(op.answered, op.sent+op.wait)})
	}
	return wants
}

// checkWanted judges the waits beside free locks.
func (r *record) checkWanted() (violations []string) {
	lengths := map[class][]time.Duration{}
	for _, wait := range r.waits() {
		lengths[wait.class] = append(lengths[wait.class], wait.length())
		if wait.length() > r.bound(wait.class) {
			r.unserved[wait.key] = true
			violations = append(violations, fmt.Sprintf("wanted: %s was free for %s, from %s to %s, while a caller of replica %d waited for it and requests got through; %s",
				wait.key, wait.length().Round(time.Millisecond), wait.from, wait.to, wait.replica, wait.since))
		}
	}
	calm := lengths[calmReleased]
	slices.Sort(calm)
	// Of few waits, one may take longer.
	excepted := max(1, int((1-calmShare)*float64(len(calm))))
	if longest := calm[max(0, len(calm)-1-excepted):]; len(longest) > 1 && longest[0] > r.calmBound() {
		violations = append(violations, fmt.Sprintf("wanted: without faults %g %% of %d waits beside free locks took up to %s, more than %s",
			calmShare*100, len(calm), longest[0], r.calmBound()))
	}
	return violations
}

// bound is how long a lock may be free while it is wanted and requests get through.
func (r *record) bound(of class) time.Duration {
	bound := boundOpen
	if r.isShared {
		bound = boundShared
	}
	if of == unseen {
		bound += boundUnseen - boundOpen
	}
	return bound
}

// calmBound returns what boundCalm means on this machine.
func (r *record) calmBound() time.Duration {
	active := union(r.activeFaults())
	var shows []time.Duration
	for _, passage := range r.passages {
		for _, show := range passage.shows {
			if len(intersect([]span{show}, active)) == 0 {
				shows = append(shows, show.length())
			}
		}
	}
	slices.Sort(shows)
	return max(boundCalm, time.Duration(float64(boundCalm)*float64(quantile(shows, calmShare))/float64(idleShow)))
}

// checkTimeouts looks for callers who were told that the lock was held for as long as they
// waited, although it had been free for long.
func (r *record) checkTimeouts() (violations []string) {
	frees := r.frees()
	for index := range r.operations {
		op := &r.operations[index]
		if op.outcome != timedOut {
			continue
		}
		recent := span{max(op.sent, op.answered-timeoutBound), op.answered}
		for _, lock := range frees[op.key] {
			if recent.length() >= timeoutBound && lock.contains(recent) && !r.stopped(op.replica, recent) {
				r.unserved[op.key] = true
				violations = append(violations, fmt.Sprintf("timeouts: the lock had been free since %s, as %s: %s", lock.from, lock.since, op))
			}
		}
	}
	return violations
}

// checkPassages makes sure that the run has tested something.
func (r *record) checkPassages() (violations []string) {
	for number, passage := range r.passages {
		calm := subtract([]span{{0, r.end}}, union(r.activeFaults()))
		if open := intersect(passage.open, calm); total(calm) > 0 && total(open) < time.Duration(minOpen*float64(total(calm))) {
			violations = append(violations, fmt.Sprintf("passages: requests of replica %d got through in %s of the %s without faults",
				number, total(open).Round(time.Millisecond), total(calm).Round(time.Millisecond)))
		}
	}
	return violations
}

// undisturbed reports whether requests of the replica got through in the whole span, and for
// so long before.
func (r *record) undisturbed(replica int, during span, before time.Duration) bool {
	return within(r.passages[replica].open, span{during.from - before, during.to})
}

// disturbed reports whether requests of any replica did not get through in the span or
// shortly before.
func (r *record) disturbed(from, to time.Duration) bool {
	for number := range r.passages {
		if !r.undisturbed(number, span{from, to}, aftermath) {
			return true
		}
	}
	return false
}

// stopped reports whether the replica did not run at some instant of the span: it was
// stopped or killed, or the machine was too busy.
func (r *record) stopped(replica int, during span) bool {
	for _, fault := range r.faults {
		if (fault.name == stopReplica.name || fault.name == suspendReplica.name) && fault.from <= during.to && during.from <= fault.to+aftermath {
			return true
		}
	}
	return r.killed(replica, during)
}

// isRefusing reports whether the API server refused all creates of the replica in the span,
// and nothing else was wrong.
func (r *record) isRefusing(replica int, during span) bool {
	isRefusing := false
	for _, fault := range r.faults {
		switch {
		case fault.name == quota.name && fault.contains(during), fault.name == terminating.name && fault.replica == replica && fault.contains(during):
			isRefusing = true
		case fault.from <= during.to && during.from <= fault.to+aftermath:
			return false
		}
	}
	return isRefusing
}

// killed reports whether the replica was killed in the span.
func (r *record) killed(replica int, during span) bool {
	return slices.ContainsFunc(r.passages[replica].dead, func(dead span) bool { return dead.from <= during.to && during.from <= dead.to })
}

// calmFor returns the first instant at which requests of all replicas had got through for
// the given time, and false if the run ended before.
func (r *record) calmFor(calm, from, end time.Duration) (time.Duration, bool) {
	return r.allFor(calm, from, end, func(passage passage) []span { return passage.open })
}

// watchedFor is calmFor, and the watches of all replicas worked as well. Controllers see nothing else.
func (r *record) watchedFor(calm, from, end time.Duration) (time.Duration, bool) {
	return r.allFor(calm, from, end, func(passage passage) []span { return passage.watching })
}

func (r *record) allFor(calm, from, end time.Duration, spans func(passage) []span) (time.Duration, bool) {
	everywhere := []span{{0, end}}
	for _, passage := range r.passages {
		everywhere = intersect(everywhere, spans(passage))
	}
	for _, common := range everywhere {
		if at := max(from, common.from) + calm; at <= common.to {
			return at, true
		}
	}
	return 0, false
}
