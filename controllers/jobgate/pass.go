package jobgate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/jobs"
)

// pass is one reconciliation of a lock and the Jobs that want it.
type pass struct {
	*Reconciler
	name  client.ObjectKey
	state *lockState
	// candidates are in the order in which they are served.
	candidates []*jobInfo
	// cachedLock is the Lock in the cache, or nil.
	cachedLock *v1alpha1.Lock
	now        time.Time
	// cannotAcquire says that the engine failed to take the lock. The next pass repeats it.
	cannotAcquire bool
	// isTaken says that another holder has the lock, or pods of another Job may run: it need
	// not be tried for the next Job that does not wait.
	isTaken bool
	// finishAttempts counts the Jobs that the pass has tried to finish.
	finishAttempts int
	// newlyWaiting is the Job whose waiter was started in this pass, or nil.
	newlyWaiting *jobInfo
	// requeue is the time until the next pass without an event; zero for none.
	requeue time.Duration
}

func (p *pass) requeueAfter(wait time.Duration) {
	wait = max(wait, time.Millisecond)
	if p.requeue == 0 || wait < p.requeue {
		p.requeue = wait
	}
}

// run does what is due. A failure for one Job does not delay the others: no Job is started
// while pods of another one may run in any case.
func (p *pass) run(ctx context.Context) error {
	failed := p.collectWaiter()
	p.cannotAcquire = failed != nil
	if err := p.refreshGrant(ctx); err != nil {
		// The Job that holds the lock may look like one that waits, and must not be ended.
		return errors.Join(failed, err, p.stopOthers(ctx))
	}
	errs := []error{failed, p.renew(ctx), p.serveHolder(ctx), p.stopOthers(ctx), p.serveQueue(ctx)}
	return errors.Join(errs...)
}

// holder returns the Job that holds the lock, or nil if none does or it is unknown.
func (p *pass) holder() *jobInfo {
	if p.state.grant == nil {
		return nil
	}
	return p.state.jobQueue.byUID[p.state.grant.job]
}

func (p *pass) isHolder(candidate *jobInfo) bool {
	return p.state.grant != nil && p.state.grant.job == candidate.orderingKey.UID
}

// isWaiting reports whether the Job waits for the lock.
func (p *pass) isWaiting(candidate *jobInfo) bool {
	return candidate.is(jobs.Waiting) && !p.isHolder(candidate)
}

func (p *pass) countJobs() *jobCount {
	var count jobCount
	for _, candidate := range p.candidates {
		if p.mayHavePods(candidate) {
			count.running++
		}
		if p.isWaiting(candidate) {
			count = count.plus(jobCount{waiting: 1, oldest: candidate.orderingKey.WaitsSince})
		}
	}
	return &count
}

// serveHolder starts the Job that holds the lock, or releases the lock when the Job has no
// pods left and will get none.
func (p *pass) serveHolder(ctx context.Context) error {
	if p.state.grant == nil {
		return nil
	}
	holder := p.holder()
	if holder == nil {
		return p.serveUnlistedHolder(ctx)
	}
	if holder.isCacheStale {
		return nil
	}
	switch holder.phase {
	case jobs.Waiting:
		return p.startUnlessBlocked(ctx, holder)
	case jobs.Running:
		delete(p.state.syncRequests, holder.job.UID)
		if !jobs.HasNoPods(holder.job) {
			p.state.grant.podlessSince = time.Time{}
		} else if p.state.grant.podlessSince.IsZero() {
			p.state.grant.podlessSince = p.now
		}
		return nil
	case jobs.Finishing:
		return p.ensureStartTime(ctx, holder)
	case jobs.Stopping, jobs.Ended:
		hasEnded, err := p.ensurePodsTerminated(ctx, holder)
		if err != nil || !hasEnded {
			return err
		}
		if err := p.release(ctx); err != nil {
			return err
		}
		return p.requeueStopped(ctx, holder)
	case jobs.Paused, jobs.Discarded:
		return p.releaseUnstarted(ctx, holder)
	}
	return fmt.Errorf("the Job %s is in an unknown phase", holder.job.Name)
}

// startUnlessBlocked starts the Job unless pods of another one may run, which has lost the
// lock. The grant is kept until they have ended.
func (p *pass) startUnlessBlocked(ctx context.Context, holder *jobInfo) error {
	if blocker := p.blockerOf(holder.job.UID); blocker != nil {
		p.reportBlocked(holder, blocker) // its write goes on beyond this pass
		return nil
	}
	if p.state.grant.isUnsettled() {
		if err := p.renewNow(ctx); err != nil || p.state.grant == nil {
			return err
		}
	}
	return p.start(ctx, holder)
}

// blockerOf returns a Job other than this one whose pods may run, or nil.
func (p *pass) blockerOf(job types.UID) *jobInfo {
	for _, other := range p.candidates {
		if other.job.UID != job && p.mayHavePods(other) {
			return other
		}
	}
	return nil
}

func (p *pass) mayHavePods(candidate *jobInfo) bool {
	switch {
	case p.state.withoutPods[candidate.job.UID]:
		return false
	case candidate.isCacheStale:
		return !jobs.OnlyPodSucceeded(candidate.job)
	}
	return jobs.MayHaveLivePods(candidate.job, candidate.phase)
}

// releaseUnstarted releases the lock of a Job that is not to be started after all. It does not
// if the Job has changed since the cache saw it.
func (p *pass) releaseUnstarted(ctx context.Context, holder *jobInfo) error {
	isCurrent, err := p.isCurrent(ctx, holder.job)
	if err != nil || !isCurrent {
		p.requeueAfter(podsPeriod)
		return err
	}
	return p.release(ctx)
}

// stopOthers stops the Jobs that run without holding the lock.
func (p *pass) stopOthers(ctx context.Context) error {
	var errs []error
	for _, candidate := range p.candidates {
		if candidate.isCacheStale || p.isHolder(candidate) {
			continue
		}
		switch candidate.phase {
		case jobs.Running:
			delete(p.state.syncRequests, candidate.job.UID)
			errs = append(errs, p.suspendWithoutLock(ctx, candidate))
		case jobs.Stopping:
			hasEnded, err := p.ensurePodsTerminated(ctx, candidate)
			if err == nil && hasEnded {
				err = p.requeueStopped(ctx, candidate)
			}
			errs = append(errs, err)
		case jobs.Finishing:
			errs = append(errs, p.ensureStartTime(ctx, candidate))
		case jobs.Ended:
			if p.mayHavePods(candidate) {
				hasEnded, err := p.ensurePodsTerminated(ctx, candidate)
				if hasEnded {
					p.requeueAfter(0) // The holder may be waiting for this.
				}
				errs = append(errs, err)
			}
		default:
		}
	}
	return errors.Join(errs...)
}

// serveQueue starts the waiter of the first waiting Job, and ends the Jobs whose wait is over.
func (p *pass) serveQueue(ctx context.Context) error {
	isHeld := p.state.grant != nil
	queue, head, err := p.serveWaiting(ctx)
	errs := []error{err}
	if p.state.waiter != nil && (head == nil || head.job.UID != p.state.waiter.job) {
		if err := p.cancelWaiter(ctx); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	if p.state.grant != nil && !isHeld {
		p.requeueAfter(time.Millisecond) // A grant was recorded just now.
		return errors.Join(errs...)
	}
	if head != nil && p.state.waiter == nil && !p.cannotAcquire {
		p.startWaiter(head) // it waits beyond this pass
		p.newlyWaiting = head
	}
	p.report(queue) // its writes go on beyond this pass
	return errors.Join(errs...)
}

// serveWaiting ends the Jobs whose wait is over. It returns the others, and the one among
// them that the waiter is for, or nil.
func (p *pass) serveWaiting(ctx context.Context) (queue []*jobInfo, head *jobInfo, err error) {
	var errs []error
	for _, candidate := range p.candidates {
		if !p.isWaiting(candidate) {
			continue
		}
		var isOver bool
		var err error
		if candidate.lockOptions.Policy == jobs.PolicyWait {
			isOver, err = p.finishOverdue(ctx, candidate)
		} else {
			isOver, err = true, p.serveNonWaiting(ctx, candidate, head == nil)
		}
		if err != nil {
			errs = append(errs, err)
		}
		if isOver {
			continue
		}
		queue = append(queue, candidate)
		if head == nil && !p.isBackedOff(candidate) {
			head = candidate
		}
	}
	return queue, head, errors.Join(errs...)
}

// serveNonWaiting tries to take the lock for a Job that does not wait, unless the lock is held
// or another Job comes first, and ends the Job if it does not get the lock.
func (p *pass) serveNonWaiting(ctx context.Context, candidate *jobInfo, isFirst bool) error {
	if p.isBackedOff(candidate) {
		return nil
	}
	if isFirst && !p.isTaken && p.state.waiter == nil && p.state.grant == nil {
		if p.cannotAcquire {
			return nil
		}
		p.isTaken = p.blockerOf(candidate.job.UID) != nil
		if !p.isTaken {
			err := p.tryAcquire(ctx, candidate)
			p.isTaken = errors.Is(err, lock.ErrHeld)
			if !p.isTaken {
				p.cannotAcquire = err != nil
				return errors.Join(err, p.failRefused(ctx, candidate, err))
			}
		}
	}
	outcome := jobs.Skipped
	if candidate.lockOptions.Policy == jobs.PolicyFail {
		outcome = jobs.Refused
	}
	return p.finishJob(ctx, candidate, outcome)
}

// finishOverdue fails a Job whose wait timeout is over.
func (p *pass) finishOverdue(ctx context.Context, candidate *jobInfo) (isOver bool, err error) {
	if candidate.lockOptions.WaitTimeout == 0 {
		return false, nil
	}
	if left := candidate.orderingKey.WaitsSince.Add(candidate.lockOptions.WaitTimeout).Sub(p.now); left > 0 {
		p.requeueAfter(left)
		return false, nil
	}
	if p.state.waiter != nil && p.state.waiter.job == candidate.job.UID {
		if err := p.cancelWaiter(ctx); err != nil {
			return true, err
		}
		if p.isHolder(candidate) {
			return true, nil // at the last moment
		}
	}
	return true, p.finishJob(ctx, candidate, jobs.TimedOut)
}
