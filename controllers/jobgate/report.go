package jobgate

import (
	"cmp"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/rules"
)

const (
	// reportAfter is how long a Job waits before that is worth an event.
	reportAfter = time.Second
	// defaultAnnotateAfter is how long a Job waits before its annotation tells it, too. Most
	// waits are over by then, and cost no change of the Job.
	defaultAnnotateAfter = time.Minute
	// reportEvery is how often a Job that waits is told again for whom and at which place:
	// before the API server forgets the last event, after an hour, and not so often that
	// client-go takes it for a repetition of the last one, within 6 minutes.
	reportEvery = 10 * time.Minute
	// reportsAtOnce is how many Jobs are told in one pass. Others follow after reportAfter.
	maxReportsPerPass = 20
	// reportsPerSecond and reportsBurst bound how many Jobs are told by all passes together,
	// as after a change of the leader, which knows of no Job whether it was told. client-go
	// queues 1000 events and drops what is more without a word. The rate is enough to tell
	// 60,000 Jobs within reportEvery.
	reportsPerSecond, reportsBurst = 100, 200
)

func newReportLimiter(now clock.PassiveClock) flowcontrol.PassiveRateLimiter {
	return flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(reportsPerSecond, reportsBurst, now)
}

// report tells the Jobs that have waited for a while for what they wait, who holds it,
// and which place they have, by an event, and those that have waited for long by an
// annotation, too.
func (p *pass) report(queue []*candidate) {
	if len(queue) == 0 {
		return
	}
	if p.isChangingHands() {
		// Places and holder would be wrong for as long as nothing is told again.
		p.requeueAfter(reportAfter)
		return
	}
	told := 0
	var annotations []annotation
	for place, candidate := range queue {
		due := p.reportDue(candidate)
		if candidate == p.newlyWaiting {
			// The lock may be free, and the start would be in conflict with the annotation.
			due = p.now.Add(reportAfter)
		}
		if left := due.Sub(p.now); left > 0 {
			p.requeueAfter(left)
			continue
		}
		if told == maxReportsPerPass || p.state.isAnnotating.Load() {
			p.requeueAfter(reportAfter)
			break
		}
		if !p.reports.TryAccept() {
			p.requeueAfter(resyncPeriod) // as often as it does anyway
			break
		}
		told++
		isEventDue := candidate.reportedAt.IsZero() || candidate.isAnnotated
		candidate.reportedAt, candidate.isAnnotated = p.now, p.now.Sub(candidate.turn.WaitsSince) >= p.annotateAfter()
		p.requeueAfter(p.reportDue(candidate).Sub(p.now))
		placed, holder := fmt.Sprintf("place %d of %d", place+1, len(queue)), p.heldBy(candidate)
		if isEventDue {
			p.emit(candidate.job, corev1.EventTypeNormal, "LockWaiting", "Wait", fmt.Sprintf("Waits at %s: %s", placed, holder))
		}
		if candidate.isAnnotated {
			annotations = append(annotations, annotation{
				job: candidate.job, text: audit.Bounded(fmt.Sprintf("%s at %s: %s", placed, p.now.UTC().Format(time.RFC3339), holder)),
			})
		}
	}
	if len(annotations) > 0 {
		p.annotate(annotations)
	}
}

// reportDue returns when the Job is to be told next.
func (p *pass) reportDue(candidate *candidate) time.Time {
	switch {
	case candidate.reportedAt.IsZero():
		return candidate.turn.WaitsSince.Add(reportAfter)
	case !candidate.isAnnotated:
		return candidate.turn.WaitsSince.Add(p.annotateAfter())
	}
	return candidate.reportedAt.Add(reportEvery)
}

func (r *Reconciler) annotateAfter() time.Duration { return cmp.Or(r.AnnotateAfter, defaultAnnotateAfter) }

// isChangingHands reports whether the first of the queue is about to hold the lock: it is
// free, or the grant has yet to be delivered.
func (p *pass) isChangingHands() bool {
	if p.state.grant != nil {
		return false
	}
	return p.shown == nil || p.state.waiter != nil && p.shown.Spec.Owner == p.state.waiter.owner
}

// heldBy says who has the lock that the Job wants.
func (p *pass) heldBy(candidate *candidate) string {
	held := p.shown
	if p.state.grant != nil {
		held = p.state.grant.lock
	}
	key := candidate.terms.FullKey()
	if held == nil {
		return fmt.Sprintf("%s is held, or about to be", key)
	}
	text := rules.HeldBy(held).Error()
	if ref := held.Spec.HolderRef; ref != nil {
		text += fmt.Sprintf(", on behalf of %s %s", ref.Kind, ref.Name)
	}
	return text
}

// tell records an event on the Job.
func (p *pass) emit(job *batchv1.Job, kind, reason, action, note string) {
	p.Recorder.Eventf(job, nil, kind, reason, action, "%s", audit.Bounded(note)) // which bounds an event's note, too
}
