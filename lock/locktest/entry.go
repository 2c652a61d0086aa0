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

// entry is everything about one lock. The mutex of the backend guards it.
type entry struct {
	name types.NamespacedName
	// lock is the object, or nil. It is replaced, never modified.
	lock *v1alpha1.Lock
	// waiters holds each *waiter, first in, first out.
	waiters  list.List
	watchers map[*watcher]struct{}
}

func (e *entry) isHeld(now time.Time) bool { return e.lock != nil && !rules.Expired(e.lock, now) }

// entry returns the entry of a lock, a new one if there is none. Whoever asks for it
// tidies up afterwards.
func (b *Backend) entry(namespace string, key v1alpha1.FullKey) *entry {
	name := types.NamespacedName{Namespace: namespace, Name: key.ObjectName()}
	found := b.entries[name]
	if found == nil {
		found = &entry{name: name, watchers: map[*watcher]struct{}{}}
		b.entries[name] = found
	}
	return found
}

// tidy forgets an entry about which there is nothing to be known, unless it was
// forgotten before and there is another one now.
func (b *Backend) tidy(e *entry) {
	if b.entries[e.name] == e && e.lock == nil && e.waiters.Len() == 0 && len(e.watchers) == 0 {
		delete(b.entries, e.name)
	}
}

// next returns the object that grants the lock, given what there is.
func (b *Backend) next(e *entry, request rules.Acquisition, isReleased bool, now time.Time) (*v1alpha1.Lock, error) {
	switch {
	case e.lock != nil && isReleased:
		return rules.HandOff(e.lock, request, b.limits, now)
	case e.lock != nil:
		return rules.TakeOver(e.lock, request, b.limits, now, 0)
	}
	granted, err := rules.Grant(e.name.Namespace, request, b.limits, now)
	if err == nil {
		granted.UID, granted.CreationTimestamp = uuid.NewUUID(), metav1.NewTime(now)
	}
	return granted, err
}

// store makes next what there is. Like an etcd revision, its number is larger than
// that of any earlier write.
func (b *Backend) store(e *entry, next *v1alpha1.Lock) {
	if e.lock != nil {
		next.CreationTimestamp = e.lock.CreationTimestamp
	}
	b.version++
	next.ResourceVersion = strconv.FormatInt(b.version, 10)
	e.lock = next
	e.changed(lock.Change{Lock: next})
}

func (b *Backend) remove(e *entry) {
	b.version++
	gone := e.lock.DeepCopy()
	gone.ResourceVersion = strconv.FormatInt(b.version, 10)
	e.lock = nil
	e.changed(lock.Change{Lock: gone, IsGone: true})
}

// changed tells those whom the change concerns.
func (e *entry) changed(change lock.Change) {
	for watcher := range e.watchers {
		watcher.send(change)
	}
	e.wakeHead()
}

// settle lets happen what was due: a lock that has expired goes to the first of the
// callers that were waiting at that time.
func (b *Backend) settle(e *entry, now time.Time) {
	if !b.isUnavailable && e.lock != nil && rules.Expired(e.lock, now) {
		end := now
		if e.lock.Spec.ExpireTime != nil {
			end = e.lock.Spec.ExpireTime.Time
		}
		b.grantNext(e, end, now)
	}
}

// release ends a live lock that its owner is done with.
func (b *Backend) release(e *entry, now time.Time) {
	if heir := e.heir(now); heir != nil {
		b.grantTo(e, heir, true, now)
		return
	}
	b.remove(e)
}

// grantNext gives a lock that ended at the given time to whoever waited for it then.
func (b *Backend) grantNext(e *entry, end, now time.Time) {
	if heir := e.heir(end); heir != nil {
		b.grantTo(e, heir, false, now)
	}
}

func (b *Backend) grantTo(e *entry, heir *waiter, isReleased bool, now time.Time) {
	granted, err := b.next(e, heir.request.Acquisition, isReleased, now)
	e.waiters.Remove(heir.element)
	heir.isServed, heir.granted, heir.err = true, granted, err
	heir.signal()
	if err == nil {
		b.store(e, granted)
	}
}
