package renewal

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/reaper"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/refusal"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

const (
	// writeTimeout bounds one write, and leaves time to read back what became of it.
	writeTimeout = 5 * time.Second
	// minDelay and maxDelay bound the time before a renewal that has failed is repeated. In between it is an
	// eighth of the time that is left.
	minDelay, maxDelay = time.Second, 10 * time.Second
)

// renew returns the lock as it is stored then, renewed or changed by others, which is to be judged anew. It returns nil if
// the lock is gone, or if it is to be tried again after the delay. It writes nothing but stamps: whatever the manifest
// says keeps its text and its field manager, since tools would take "1m0s" for a change of "1m". The ttl begins when the
// lock was judged, so that it ends within the bound that it was judged by.
func (r *Reconciler) renew(ctx context.Context, known *v1alpha1.Lock, longest time.Duration, judged time.Time) (stored *v1alpha1.Lock, delay time.Duration) {
	desired, err := rules.RenewedByOperator(known, longest, judged)
	if err != nil {
		return nil, r.failed(ctx, known, err)
	}
	renewed := desired.DeepCopy()
	// A process that was frozen since it judged the lock must not send what it decided then.
	writing, cancel := context.WithTimeout(ctx, min(writeTimeout, known.Spec.ExpireTime.Sub(r.Clock.Now())-rules.OperatorRenewalMargin))
	defer cancel()
	err = r.Client.Patch(writing, renewed, client.MergeFromWithOptions(known, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		hasChanged := reaper.HasChanged(err)
		if !hasChanged && !engine.MayHaveHappened(err) {
			return nil, r.failed(ctx, known, err)
		}
		current, readErr := r.live(ctx, client.ObjectKeyFromObject(known))
		switch {
		case readErr != nil:
			return nil, r.failed(ctx, known, err)
		case current == nil:
			return nil, 0
		case !isWritten(current, desired):
			if !hasChanged {
				return nil, r.failed(ctx, known, err)
			}
			r.outcomes.changed.Add(1)
			return current, 0
		}
		renewed = current // The answer was lost, or a proxy has repeated the request.
	}
	r.outcomes.renewed.Add(1)
	audit.OrNowhere(r.Audit).Record(audit.Prolonged(audit.Controller, "", known, renewed))
	logf.FromContext(ctx).V(1).Info("Renewed a Lock", "lock", klog.KObj(renewed))
	if rules.Expired(known, r.Clock.Now()) && r.failures.IsDue("late", servertime.Timers(r.Clock).Now()) {
		logf.FromContext(ctx).Info("A renewal was held up and may have been stored after the expiry of the lock", "lock", klog.KObj(renewed))
	}
	return renewed, 0
}

// isWritten reports whether the lock has the renewal that was sent.
func isWritten(current, desired *v1alpha1.Lock) bool {
	return current.UID == desired.UID && current.Spec.AcquireTime.Equal(desired.Spec.AcquireTime) && current.Spec.RenewTime.Equal(desired.Spec.RenewTime)
}

// failed logs why a lock cannot be renewed, once for each cause, and returns when to try again.
func (r *Reconciler) failed(ctx context.Context, lock *v1alpha1.Lock, err error) time.Duration {
	r.outcomes.failed.Add(1)
	if r.failures.IsDue(causeOf(err), servertime.Timers(r.Clock).Now()) {
		logf.FromContext(ctx).Error(refusal.WithoutOwners(err, lock.Spec.Owner), "Locks with the renewalPolicy Operator cannot be renewed, trying again", "lock", klog.KObj(lock))
	}
	if lock.Spec.ExpireTime == nil {
		return maxDelay
	}
	return min(max(lock.Spec.ExpireTime.Sub(r.Clock.Now())/8, minDelay), maxDelay)
}

// causeOf returns what is the same for every lock that fails for the same cause.
func causeOf(err error) string {
	if refused, isRefused := refusal.Of(err); isRefused {
		return refused.Source
	}
	return "reason " + string(apierrors.ReasonForError(err))
}
