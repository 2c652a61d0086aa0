package jobgate

import (
	"cmp"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/rules"
)

const (
	// reportAfter is how long a Job waits before an event reports it.
	reportAfter = time.Second
	// defaultAnnotateAfter is how long a Job waits before its annotation reports it, too. Most
	// waits are shorter and cost no write of the Job.
	defaultAnnotateAfter = time.Minute
	// noPodsAfter is how long a Job that was started has no pods before the Jobs behind it are told: it takes the Job
	// controller a moment to create them, and to create others for those that have failed.
	noPodsAfter = time.Minute
	// reportEvery is the interval between reports to a waiting Job: below the hour after which
	// the API server drops the last event, and above the 6 minutes within which client-go
	// treats an event as a repetition.
	reportEvery = 10 * time.Minute
	// maxReportsPerPass bounds the reports of one pass. Others follow after reportAfter.
	maxReportsPerPass = 20
	// reportsPerSecond and reportsBurst bound the reports of all passes together, for example
	// by a new leader, which does not know the last reports. client-go queues 1000 events and
	// silently drops the rest. The rate is enough for 60,000 Jobs within reportEvery.
	reportsPerSecond, reportsBurst = 100, 200
)

func newReportLimiter(now clock.PassiveClock) flowcontrol.PassiveRateLimiter {
	return flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(reportsPerSecond, reportsBurst, now)
}

// report reports to the Jobs that have waited for a while which lock they wait for, its holder,
// and their place, by an event, and after a long wait by an annotation, too.
func (p *pass) report(queue []*jobInfo) {
	if len(queue) == 0 {
		return
	}
	if p.isChangingHands() {
		// Places and holder would be wrong until the next report.
		p.requeueAfter(reportAfter)
		return
	}
	told := 0
	podlessFrom, isPodless := p.podlessFrom()
	var annotations []annotation
	for place, candidate := range queue {
		if p.isBackedOff(candidate) {
			continue // It was told of its refusal.
		}
		due := p.reportDue(candidate)
		isNews := !candidate.reportedAt.IsZero() && candidate.reportedAt.Before(podlessFrom)
		if isNews && podlessFrom.Before(due) {
			due = podlessFrom
		}
		if candidate == p.newlyWaiting {
			// The lock may be free, and the annotation would cause a conflict with the start.
			due = p.now.Add(reportAfter)
		}
		if left := due.Sub(p.now); left > 0 {
			p.requeueAfter(left)
			continue
		}
		if told == maxReportsPerPass || p.state.annotating.Load() > 0 {
			p.requeueAfter(reportAfter)
			break
		}
		if !p.reports.TryAccept() {
			p.requeueAfter(resyncPeriod)
			break
		}
		told++
		isEventDue := candidate.reportedAt.IsZero() || candidate.isAnnotated || isPodless && isNews
		candidate.reportedAt, candidate.isAnnotated = p.now, p.now.Sub(candidate.orderingKey.WaitsSince) >= p.annotateAfter()
		p.requeueAfter(p.reportDue(candidate).Sub(p.now))
		placed, holder := fmt.Sprintf("place %d of %d", place+1, len(queue)), p.heldBy(candidate)
		kind, reason := corev1.EventTypeNormal, "LockWaiting"
		if isPodless {
			kind, reason = corev1.EventTypeWarning, "LockHolderWithoutPods"
		}
		if isEventDue {
			p.emit(candidate.job, kind, reason, "Wait", fmt.Sprintf("Waits at %s: %s", placed, holder))
		}
		if candidate.isAnnotated {
			annotations = append(annotations, annotation{
				job: candidate.job, text: audit.Bounded(fmt.Sprintf("%s at %s: %s", placed, p.now.UTC().Format(time.RFC3339), holder)),
			})
		}
	}
	if len(annotations) > 0 {
		p.annotateAll(annotations)
	}
}

// reportBlocked reports to the Job that holds the lock, and is not started for a while, which Job has
// the pods that it waits for: what was reported while it waited for the lock is no longer true.
func (p *pass) reportBlocked(holder, blocker *jobInfo) {
	held := p.state.grant
	due := held.lock.Spec.AcquireTime.Add(reportAfter)
	if !held.blockedReportedAt.IsZero() {
		due = held.blockedReportedAt.Add(reportEvery)
	}
	switch left := due.Sub(p.now); {
	case left > 0:
		p.requeueAfter(left)
		return
	case p.state.annotating.Load() > 0 || !p.reports.TryAccept():
		p.requeueAfter(reportAfter)
		return
	}
	isFirst := held.blockedReportedAt.IsZero()
	held.blockedReportedAt = p.now
	p.requeueAfter(reportEvery)
	holder.reportedAt, holder.isAnnotated = time.Time{}, false // It may lose the lock, and wait again.
	text := fmt.Sprintf("olds %s since %s, and is started when the pods of the Job %s have ended",
		holder.lockOptions.FullKey(), held.lock.Spec.AcquireTime.UTC().Format(time.RFC3339), blocker.job.Name)
	p.emit(holder.job, corev1.EventTypeNormal, "LockBlocked", "Start", "H"+text)
	// A short wait has left no annotation, and may end shortly.
	if _, isAnnotated := holder.job.Annotations[v1alpha1.LockWaitingAnnotation]; isAnnotated || !isFirst {
		p.annotateAll([]annotation{{job: holder.job, text: audit.Bounded("h" + text)}})
	}
}

// reportDue returns when the next report to the Job is due.
func (p *pass) reportDue(candidate *jobInfo) time.Time {
	switch {
	case candidate.reportedAt.IsZero():
		return candidate.orderingKey.WaitsSince.Add(reportAfter)
	case !candidate.isAnnotated:
		return candidate.orderingKey.WaitsSince.Add(p.annotateAfter())
	}
	return candidate.reportedAt.Add(reportEvery)
}

func (r *Reconciler) annotateAfter() time.Duration {
	return cmp.Or(r.AnnotateAfter, defaultAnnotateAfter)
}

// isChangingHands reports whether the first Job of the queue is about to hold the lock: the
// lock is free, or the grant has yet to be delivered.
func (p *pass) isChangingHands() bool {
	if p.state.grant != nil {
		return false
	}
	return p.cachedLock == nil || p.state.waiter != nil && p.cachedLock.Spec.Owner == p.state.waiter.owner
}

// heldBy describes the holder of the lock that the Job wants.
func (p *pass) heldBy(candidate *jobInfo) string {
	held := p.cachedLock
	if p.state.grant != nil {
		held = p.state.grant.lock
	}
	key := candidate.lockOptions.FullKey()
	if held == nil {
		return fmt.Sprintf("%s is held, or about to be", key)
	}
	text := rules.HeldBy(held).Error()
	if ref := held.Spec.HolderRef; ref != nil {
		text += fmt.Sprintf(", on behalf of %s %s", ref.Kind, ref.Name)
	}
	if _, isPodless := p.podlessFrom(); isPodless {
		text += ", which was started and has no pods: see its events"
	}
	return text
}

// podlessFrom returns the time from which the Jobs that wait are told that the Job which holds the lock was started and
// has no pods, and whether that has come; zero if it has some, or is not started. It keeps the lock: it may yet get its pods.
func (p *pass) podlessFrom() (from time.Time, isPodless bool) {
	holder := p.holder()
	if holder == nil || !holder.is(jobs.Running) || p.state.grant.podlessSince.IsZero() {
		return time.Time{}, false
	}
	// The status does not say since when: the Job controller stores no start time of a Job whose first pod it could not create.
	from = p.state.grant.podlessSince.Add(noPodsAfter)
	return from, !from.After(p.now)
}

// emit records an event on the Job.
func (p *pass) emit(job *batchv1.Job, kind, reason, action, note string) {
	p.Recorder.Eventf(job, nil, kind, reason, action, "%s", audit.Bounded(note)) // The limit of a record is below that of an event's note.
}
