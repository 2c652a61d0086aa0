package locktest

import (
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// Expire ends a lock as if its ttl had passed, without a step of the clock: the holder can neither
// renew nor release it, and the first waiter gets it. The error matches [lock.ErrNotHeld], or
// [lock.ErrUnavailable] during an outage.
func (b *Backend) Expire(namespace string, key v1alpha1.FullKey) error {
	return b.withEntry(namespace, key, "expire", func(e *entry, now time.Time) error {
		if !e.isHeld(now) {
			return lock.ErrNotHeld
		}
		token, err := e.lock.FencingToken()
		if err != nil {
			return err
		}
		next := e.lock.DeepCopy()
		next.Spec.FencingToken, next.Spec.ExpireTime = &token, new(v1alpha1.NewTimestamp(now))
		b.store(e, next)
		b.handleExpiry(e, now)
		return nil
	})
}

// SetUnavailable begins or ends an outage. During an outage calls do nothing and return an error
// that matches [lock.ErrUnavailable]. Waiters keep waiting; if their wait ends meanwhile, they get
// that error, too. Locks still expire, and go to the first waiter when the outage is over.
func (b *Backend) SetUnavailable(isUnavailable bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isUnavailable = isUnavailable
	now := b.clock.Now()
	for _, e := range b.entries {
		b.handleExpiry(e, now)
		e.wakeHead()
	}
}

// Waiting returns the length of the queue of a lock. A test can wait for callers to join the queue
// before it steps the clock or releases the lock:
//
//	for backend.Waiting("default", key) < 2 {
//		runtime.Gosched()
//	}
func (b *Backend) Waiting(namespace string, key v1alpha1.FullKey) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entry(namespace, key)
	defer b.deleteIfEmpty(e)
	return e.waiters.Len()
}
