package locktest

import (
	"container/list"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// entry is the state of one lock. The mutex of the backend guards it.
type entry struct {
	name types.NamespacedName
	// lock is the object, or nil. It is replaced, never modified.
	lock *v1alpha1.Lock
	// waiters holds the *waiter values: the highest priority first, and first in, first out within a priority.
	waiters  list.List
	watchers map[*watcher]struct{}
	// undelivered is the waiter that was granted the lock and has not taken it yet, or nil.
	undelivered *waiter
}

func (e *entry) isHeld(now time.Time) bool { return e.lock != nil && !rules.Expired(e.lock, now) }

// entry returns the entry of a lock, a new one if there is none. The caller calls deleteIfEmpty
// afterwards.
func (b *Backend) entry(namespace string, key v1alpha1.FullKey) *entry {
	name := types.NamespacedName{Namespace: namespace, Name: key.ObjectName()}
	found := b.entries[name]
	if found == nil {
		found = &entry{name: name, watchers: map[*watcher]struct{}{}}
		b.entries[name] = found
	}
	return found
}

// deleteIfEmpty deletes an empty entry, unless another one has replaced it.
func (b *Backend) deleteIfEmpty(e *entry) {
	if b.entries[e.name] == e && e.lock == nil && e.waiters.Len() == 0 && len(e.watchers) == 0 {
		delete(b.entries, e.name)
	}
}

// grant grants a lock that is free, has expired or is being released.
func (b *Backend) grant(e *entry, request rules.Acquisition, now time.Time) *v1alpha1.Lock {
	var granted *v1alpha1.Lock
	if e.lock != nil {
		granted = rules.HandOff(e.lock, request, b.limits, now)
	} else {
		granted = rules.Grant(e.name.Namespace, request, b.limits, now)
		granted.UID, granted.CreationTimestamp = uuid.NewUUID(), metav1.NewTime(now)
	}
	b.store(e, granted)
	return granted
}

// store replaces the object. Like an etcd revision, its resourceVersion is larger than
// that of any earlier write.
func (b *Backend) store(e *entry, next *v1alpha1.Lock) {
	if e.lock != nil {
		next.CreationTimestamp = e.lock.CreationTimestamp
	}
	next.ManagedFields = nil // The API server does not store the wish for none.
	b.version++
	next.ResourceVersion = strconv.FormatInt(b.version, 10)
	e.lock = next
	b.changed(e, lock.Change{Lock: next})
}

func (b *Backend) remove(e *entry) {
	b.version++
	gone := e.lock.DeepCopy()
	gone.ResourceVersion = strconv.FormatInt(b.version, 10)
	e.lock = nil
	b.changed(e, lock.Change{Lock: gone, IsGone: true})
}

// changed informs the watchers and the first waiter.
func (b *Backend) changed(e *entry, change lock.Change) {
	b.sendToStreams(e.name, change)
	for watcher := range e.watchers {
		watcher.send(change)
	}
	e.wakeHead()
}

// handleExpiry grants an expired lock to the first waiter of the time of its expiry. A waiter that
// has not taken its grant by then is the first.
func (b *Backend) handleExpiry(e *entry, now time.Time) {
	if !b.isUnavailable && e.lock != nil && rules.Expired(e.lock, now) {
		end := now
		if e.lock.Spec.ExpireTime != nil {
			end = e.lock.Spec.ExpireTime.Time
		}
		if late := e.undelivered; late != nil && late.granted == e.lock {
			e.requeue(late)
		}
		b.grantFirst(e, end, now)
	}
}

// release ends a held lock, or hands it off.
func (b *Backend) release(e *entry, now time.Time) {
	if !b.grantFirst(e, now, now) {
		b.remove(e)
	}
}

// grantFirst grants a lock that ended at the given time to the first waiter of that time. It
// returns false if there was none.
func (b *Backend) grantFirst(e *entry, end, now time.Time) bool {
	first := e.first(end)
	if first == nil {
		return false
	}
	e.waiters.Remove(first.element)
	first.granted, e.undelivered = b.grant(e, first.request.Acquisition, now), first
	first.signal()
	return true
}
