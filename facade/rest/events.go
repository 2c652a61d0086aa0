package rest

import (
	"container/heap"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// event is one event about one lock.
type event struct {
	name string
	// lock is as stored or, if it is no longer held, as it was last.
	lock *v1alpha1.Lock
	// version is the resourceVersion to go on from. Empty if nothing was written.
	version string
	// former is the lock as it was before a hand-off, and nil otherwise.
	former *v1alpha1.Lock
}

// ended returns the grant that an event has ended, as it was last, and when that was. The grant is nil if it has ended none.
func (e *event) ended(now time.Time) (grant *v1alpha1.Lock, at time.Time) {
	switch e.name {
	case wire.EventReleased:
		return e.lock, now
	case wire.EventExpired:
		return e.lock, e.lock.Spec.ExpireTime.Time
	case wire.EventHandedOff:
		return e.former, e.lock.Spec.AcquireTime.Time
	}
	return nil, now
}

// history follows the locks of a stream, and tells what happened to them. What has been told is told
// once: an end by time is told when the time has come, not again when the object is deleted.
type history struct {
	// held are the locks that are held as far as was told, by the names of their objects.
	held map[types.NamespacedName]*heldLock
	// byEnd are the same locks, that which expires first at the front: a namespace may have thousands that
	// expire one by one.
	byEnd byEnd
}

// heldLock is a lock with its place in [byEnd].
type heldLock struct {
	*v1alpha1.Lock

	place int
}

// byEnd is a heap of locks by their ends.
type byEnd []*heldLock

// Len implements [heap.Interface].
func (b byEnd) Len() int { return len(b) }

// Less implements [heap.Interface].
func (b byEnd) Less(i, j int) bool {
	return b[i].Spec.ExpireTime.Time.Before(b[j].Spec.ExpireTime.Time)
}

// Swap implements [heap.Interface].
func (b byEnd) Swap(i, j int) {
	b[i], b[j] = b[j], b[i]
	b[i].place, b[j].place = i, j
}

// Push implements [heap.Interface].
func (b *byEnd) Push(added any) {
	each := added.(*heldLock)
	each.place = len(*b)
	*b = append(*b, each)
}

// Pop implements [heap.Interface].
func (b *byEnd) Pop() any {
	last := len(*b) - 1
	removed := (*b)[last]
	(*b)[last] = nil
	*b = (*b)[:last]
	return removed
}

// begin returns the locks of a stream that are held at its beginning.
func begin(present []*v1alpha1.Lock, isWanted func(*v1alpha1.Lock) bool, now time.Time) *history {
	h := &history{held: map[types.NamespacedName]*heldLock{}}
	for _, each := range present {
		if isWanted(each) && !rules.Expired(each, now) {
			h.keep(each)
		}
	}
	return h
}

// next returns when the next lock expires, zero if none does.
func (h *history) next() time.Time {
	if len(h.byEnd) == 0 {
		return time.Time{}
	}
	return h.byEnd[0].Spec.ExpireTime.Time
}

// keep replaces the lock of that name, or adds it.
func (h *history) keep(current *v1alpha1.Lock) {
	if known := h.held[nameOf(current)]; known != nil {
		known.Lock = current
		heap.Fix(&h.byEnd, known.place)
		return
	}
	added := &heldLock{Lock: current}
	h.held[nameOf(current)] = added
	heap.Push(&h.byEnd, added)
}

func nameOf(each *v1alpha1.Lock) types.NamespacedName {
	return types.NamespacedName{Namespace: each.Namespace, Name: each.Name}
}

// forget removes the lock of that name, if there is one.
func (h *history) forget(name types.NamespacedName) {
	if known := h.held[name]; known != nil {
		delete(h.held, name)
		heap.Remove(&h.byEnd, known.place)
	}
}

// expire returns the locks that have ended by their time, if that was not after now, in the order of their ends.
func (h *history) expire(now time.Time) []event {
	var ended []event
	for len(h.byEnd) > 0 && rules.Expired(h.byEnd[0].Lock, now) {
		first := h.byEnd[0].Lock
		h.forget(nameOf(first))
		ended = append(ended, event{name: wire.EventExpired, lock: first})
	}
	return ended
}

// follow returns what a change means that arrives now. A lock that has expired at the time certain, or earlier, has ended by its
// time. One that has expired since may have been released or renewed in time, but is no news if it was not held before.
func (h *history) follow(change lock.Change, certain, now time.Time) []event {
	current := change.Lock
	var former *v1alpha1.Lock
	if known := h.held[nameOf(current)]; known != nil {
		former = known.Lock
	}
	if former != nil && former.ResourceVersion == current.ResourceVersion && !change.IsGone {
		return nil // A list of the watch has repeated it.
	}
	if former == nil && rules.Expired(current, now) {
		return nil
	}
	if change.IsGone || rules.Expired(current, certain) {
		h.forget(nameOf(current))
		switch {
		case former == nil:
			return nil
		case rules.Expired(former, certain) || !change.IsGone:
			return []event{{name: wire.EventExpired, lock: former, version: current.ResourceVersion}}
		}
		return []event{{name: wire.EventReleased, lock: former, version: current.ResourceVersion}}
	}
	h.keep(current)
	return eventsOf(former, current)
}

// eventsOf returns what has happened to a lock that is held, and was as former says or, if that is
// nil, was not held.
func eventsOf(former, current *v1alpha1.Lock) []event {
	switch {
	case former == nil:
		return []event{{name: wire.EventAcquired, lock: current, version: current.ResourceVersion}}
	case !former.Spec.AcquireTime.Equal(current.Spec.AcquireTime):
		if rules.Expired(former, current.Spec.AcquireTime.Time) {
			return []event{{name: wire.EventExpired, lock: former}, {name: wire.EventAcquired, lock: current, version: current.ResourceVersion}}
		}
		return []event{{name: wire.EventHandedOff, lock: current, version: current.ResourceVersion, former: former}}
	case !former.Spec.RenewTime.Equal(current.Spec.RenewTime):
		return []event{{name: wire.EventRenewed, lock: current, version: current.ResourceVersion}}
	}
	return []event{{name: wire.EventChanged, lock: current, version: current.ResourceVersion}}
}
