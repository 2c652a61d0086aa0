package engine

import (
	"context"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/observe"
)

// grantAudit holds what the audit needs to know about a grant.
type grantAudit struct {
	// event says how the write of the grant begins it. former is the grant that the write ends, or
	// nil.
	event  audit.Event
	former *grant
	// endReason and endedBy say why the grant is to end, and on whose request. An empty reason
	// means [audit.Abandoned].
	endReason audit.Reason
	endedBy   string
}

func (g grantAudit) reasonToEnd() audit.Reason {
	if g.endReason == "" {
		return audit.Abandoned
	}
	return g.endReason
}

// recordGrant records that the write of the grant happened and stored the lock.
func (e *Engine) recordGrant(sent grant, stored *v1alpha1.Lock) {
	begun := audit.Begun(sent.event, e.via, stored)
	switch former := sent.former; {
	case former == nil:
	case sent.event == audit.TakenOver:
		e.audit.Record(audit.Ended(audit.Expired, audit.Replaced, e.via, begun.Holder, former.lock, begun.Time.Time))
	default:
		e.audit.Record(audit.Ended(audit.Released, audit.PassedOn, e.via, former.endedBy, former.lock, begun.Time.Time))
	}
	e.audit.Record(begun)
}

// recordArrival records that an unanswered grant did happen, and returns the grant as stored.
func (e *Engine) recordArrival(sent grant, stored *v1alpha1.Lock) grant {
	e.recordGrant(sent, stored)
	operation := observe.Acquire
	if sent.event == audit.HandedOn {
		operation = observe.HandOff
	}
	e.observer.Unanswered(operation, observe.Late)
	known := grantOf(stored)
	known.endReason, known.endedBy = sent.endReason, sent.endedBy
	return known
}

// recordEnd records that the grant was released or, if it had expired, deleted to be created again.
// The engine whose conditional write succeeded confirms it, so one record at most does. One whose
// delete went unanswered, or found nothing, cannot know: a proxy on the way may have repeated its
// delete, or another client have come first. Its record says so, since the end of a grant is better
// recorded twice than never.
func (e *Engine) recordEnd(ended *v1alpha1.Lock, reason audit.Reason, actor string, isUnconfirmed bool) {
	event := audit.Released
	if reason == audit.Reaped {
		event = audit.Expired
	}
	record := audit.Ended(event, reason, e.via, actor, ended, e.clock.Now())
	record.Unconfirmed = isUnconfirmed
	e.audit.Record(record)
}

func (e *Engine) recordForcedRelease(ended ending, actor, reason string) {
	record := audit.Ended(audit.ForceReleased, audit.ByForce, e.via, actor, ended.lock, e.clock.Now())
	record.Message, record.Unconfirmed = audit.Bounded(reason), ended.isUnconfirmed
	e.audit.Record(record)
}

// actor returns the user that the engine acts for, or else the holder of the proof.
func actor(ctx context.Context, proof lock.Proof) string {
	if user := lock.UserFrom(ctx); user != "" {
		return user
	}
	return proof.Holder
}
