package jobgate

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/tracing"
)

// renewalsPerTTL is the number of renewals in a ttl. It leaves time for several attempts and
// for a change of leader.
const renewalsPerTTL = 3

// grant is a grant of the lock to a Job.
type grant struct {
	job types.UID
	// lock is the newest known state of the grant.
	lock *v1alpha1.Lock
	// trace is that of the Job; nil if it is not known.
	trace *tracing.Job
	// isSeen says that the cache has shown the grant: its absence is then a reason to verify
	// the grant.
	isSeen bool
	// isVerified says that the API server has shown the grant, not only the cache.
	isVerified bool
	// isAdopted says that the grant was not delivered to this process.
	isAdopted bool
	// podlessSince is since when this process has seen the Job run under the grant without pods; zero if it has some.
	podlessSince time.Time
	// blockedReportedAt is when the Job was last told which pods keep it from its start, or zero.
	blockedReportedAt time.Time
}

// isIn reports whether the object still records the grant.
func (h *grant) isIn(current *v1alpha1.Lock) bool {
	return current.UID == h.lock.UID && current.Spec.Owner == h.lock.Spec.Owner && current.Spec.Holder == h.lock.Spec.Holder &&
		current.Spec.AcquireTime.Equal(h.lock.Spec.AcquireTime)
}

// renewAt returns when the lock is to be renewed.
func (h *grant) renewAt() time.Time {
	expire, renew := h.lock.Spec.ExpireTime.Time, h.lock.Spec.RenewTime.Time
	return renew.Add(expire.Sub(renew) / renewalsPerTTL)
}

func (p *pass) recordGrant(job types.UID, granted *v1alpha1.Lock, trace *tracing.Job) {
	p.state.grant = &grant{job: job, lock: granted, trace: trace, isVerified: true}
}

// refreshGrant updates the grant from the cache, and verifies it if the cache contradicts
// it.
func (p *pass) refreshGrant(ctx context.Context) error {
	var current v1alpha1.Lock
	switch err := p.Client.Get(ctx, p.name, &current); {
	case apierrors.IsNotFound(err):
		p.cachedLock = nil
	case err != nil:
		return fmt.Errorf("look the Lock up: %w", err)
	default:
		p.cachedLock = &current
	}
	if p.state.grant == nil {
		p.adoptGrant(p.cachedLock)
	}
	if p.state.grant == nil || !p.isDoubtful() {
		return nil
	}
	return p.verifyGrant(ctx)
}

// adoptGrant takes over a grant that another replica or an earlier process acquired. It is
// verified first, since the cache may be behind.
func (p *pass) adoptGrant(current *v1alpha1.Lock) {
	if current == nil || !p.IsForJob(current) || p.state.releasedOwners[current.Spec.Owner] ||
		!current.DeletionTimestamp.IsZero() || rules.Expired(current, p.now) {
		return
	}
	if waiting := p.state.waiter; waiting != nil && waiting.owner == current.Spec.Owner {
		return // It is about to deliver that grant, and must not be cancelled.
	}
	p.state.grant = &grant{job: current.Spec.HolderRef.UID, lock: current, isSeen: true, isAdopted: true}
}

// isUnsettled reports whether what has made the grant may yet take it back: it could not deliver the grant to the
// process that asked for it. It does not once the grant has been renewed.
func (h *grant) isUnsettled() bool { return h.isAdopted && !rules.IsRenewed(h.lock) }

// isDoubtful reports whether the grant must be verified: the cache contradicts it although
// it has or must have seen it, only the cache has shown it, or it has expired.
func (p *pass) isDoubtful() bool {
	held := p.state.grant
	switch {
	case !held.isVerified, rules.Expired(held.lock, p.now):
		return true
	case p.cachedLock == nil:
		return held.isSeen
	case held.isIn(p.cachedLock):
		held.isSeen = true
		if rules.IsNewer(p.cachedLock.ResourceVersion, held.lock.ResourceVersion) {
			held.lock = p.cachedLock
		}
		return false
	}
	return rules.IsNewer(p.cachedLock.ResourceVersion, held.lock.ResourceVersion)
}

// verifyGrant asks the API server whether the grant still exists.
func (p *pass) verifyGrant(ctx context.Context) error {
	held := p.state.grant
	current, err := p.Engine.Get(ctx, p.name.Namespace, held.lock.Spec.FullKey())
	switch {
	case err == nil && held.isIn(current):
		held.lock, held.isVerified = current, true
	case err == nil, isEnded(err):
		p.loseGrant(ctx)
	default:
		return fmt.Errorf("read the lock: %w", err)
	}
	return nil
}

// loseGrant drops a grant that the Job has lost. A running Job is suspended later in the
// pass.
func (p *pass) loseGrant(ctx context.Context) {
	held := p.state.grant
	p.state.grant = nil
	p.state.recordReleased(held.lock.Spec.Owner)
	held.trace.Failed(lock.ErrNotHeld)
	if !held.isVerified {
		return // It may have been released long ago.
	}
	p.state.losses[held.job] = p.lossOf(held)
	logf.FromContext(ctx).Info("Lost the Lock of a Job", "lock", klog.KObj(held.lock), "job", held.lock.Spec.HolderRef.Name)
}

// lossOf says how the grant has ended. Before its expiry, only a forced release ends it.
func (p *pass) lossOf(held *grant) string {
	if rules.Expired(held.lock, p.Clock.Now()) { // Maybe since the pass began: a renewal can be too late.
		return fmt.Sprintf("it expired at %s, and was not renewed in time", held.lock.Spec.ExpireTime.UTC().Format(time.RFC3339))
	}
	if shown := p.state.lastEvent.Load(); shown != nil && shown.gone == held.lock.Spec.Owner && shown.forceReason != "" {
		return fmt.Sprintf("its release was forced, with the reason %q", shown.forceReason)
	}
	return "its release was forced"
}

// proof proves that the lock is held for a Job by this operator: a lock of another holder with the same
// owner token is not.
func (p *pass) proof() lock.Proof {
	return lock.Proof{Owner: p.state.grant.lock.Spec.Owner, Holder: p.Holder}
}

// renew renews the lock when that is due. Failed attempts are repeated until the lock is
// found to have ended.
func (p *pass) renew(ctx context.Context) error {
	held := p.state.grant
	if held == nil {
		return nil
	}
	if due := held.renewAt().Sub(p.now); due > 0 {
		p.requeueAfter(due)
		return nil
	}
	return p.renewNow(ctx)
}

// renewNow renews the lock.
func (p *pass) renewNow(ctx context.Context) error {
	held := p.state.grant
	renewed, err := p.Engine.Renew(ctx, p.name.Namespace, held.lock.Spec.FullKey(), p.proof(), 0)
	switch {
	case err == nil:
		held.lock = renewed
		p.requeueAfter(held.renewAt().Sub(p.Clock.Now()))
		return nil
	case isEnded(err):
		p.loseGrant(ctx)
		return nil
	}
	return fmt.Errorf("renew it: %w", err)
}

// release releases the lock. If a waiter of the engine waits, the engine hands the lock off
// to it in the same write.
func (p *pass) release(ctx context.Context) error {
	held := p.state.grant
	ctx, end := p.Tracer.BeginRelease(ctx, held.trace, p.name.Namespace, held.lock.Spec.FullKey())
	err := p.Engine.Release(ctx, p.name.Namespace, held.lock.Spec.FullKey(), p.proof())
	end(err)
	if err != nil && !isEnded(err) {
		return fmt.Errorf("release it: %w", err)
	}
	p.state.grant = nil
	p.state.recordReleased(held.lock.Spec.Owner)
	held.trace.Failed(context.Canceled)
	return nil
}

// tryAcquire takes the lock for a Job that does not wait. The error is a [*lock.HeldError]
// if the lock has another holder.
func (p *pass) tryAcquire(ctx context.Context, candidate *jobInfo) error {
	request, trace := p.request(candidate), p.beginTrace(candidate)
	granted, err := p.acquire(trace.Within(ctx), p.name.Namespace, request)
	if err == nil {
		p.recordGrant(candidate.job.UID, granted, trace)
		return nil
	}
	trace.Failed(err)
	if errors.Is(err, lock.ErrHeld) {
		return err
	}
	p.recordRefusedLock(candidate, err)
	return fmt.Errorf("acquire it: %w", err)
}
