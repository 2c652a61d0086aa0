package rules

import (
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Expired reports whether the holder may no longer rely on the lock: from
// expireTime on it is not held, cannot be renewed and cannot be released.
func Expired(lock *v1alpha1.Lock, now time.Time) bool {
	return UntilReclaimable(lock, now, 0) <= 0
}

// UntilReclaimable returns how long after now others must wait before they may end the lock; zero
// or less if they may. They wait for the clock skew allowance beyond expireTime, because the clock
// that stamped the lock may be behind theirs. A lock without expireTime was never stamped and
// therefore never granted; it may be ended at once.
func UntilReclaimable(lock *v1alpha1.Lock, now time.Time, allowance time.Duration) time.Duration {
	if lock.Spec.ExpireTime == nil {
		return 0
	}
	return lock.Spec.ExpireTime.Add(allowance).Sub(now)
}

// Reclaim reports whether others may end the lock, even if it is being deleted already. Whether its
// object can carry the next grant is another question; see [IsReusable]. The error is a
// [*HeldError].
func Reclaim(lock *v1alpha1.Lock, now time.Time, allowance time.Duration) error {
	if UntilReclaimable(lock, now, allowance) > 0 {
		return HeldAt(lock, now)
	}
	return nil
}

// IsReusable reports whether the next grant of the lock may be written over its object. An object
// that is being deleted ends with its last finalizer. One with owners may be about to be deleted
// with them: the garbage collector of Kubernetes before 1.34 names the object by its UID alone,
// which a hand-off or a take-over keeps.
func IsReusable(lock *v1alpha1.Lock) bool {
	return lock.DeletionTimestamp.IsZero() && len(lock.OwnerReferences) == 0
}

// HeldAt returns the error for a lock that is not to be had at the given time. It names no holder
// once the lock has expired, as no other answer does.
func HeldAt(lock *v1alpha1.Lock, now time.Time) *HeldError {
	if Expired(lock, now) {
		return &HeldError{Key: lock.Spec.FullKey(), IsExpired: true}
	}
	return HeldBy(lock)
}

// HeldBy returns the error that names the present holder.
func HeldBy(lock *v1alpha1.Lock) *HeldError {
	refusal := &HeldError{Key: lock.Spec.FullKey(), Holder: lock.Spec.Holder, HolderUID: lock.Spec.HolderUID}
	if lock.Spec.AcquireTime != nil {
		refusal.AcquireTime = lock.Spec.AcquireTime.Time
	}
	if lock.Spec.ExpireTime != nil {
		refusal.ExpireTime = lock.Spec.ExpireTime.Time
	}
	return refusal
}
