package rest

import (
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// Names of events.
const (
	// eventSync has all locks that are held: at the beginning, and whenever some changes may have been
	// missed.
	eventSync = "sync"
	// eventAcquired is a grant of a free lock, or of one that had expired.
	eventAcquired = "acquired"
	// eventHandedOff is a grant to a waiter in the write that ended the grant before.
	eventHandedOff = "handed-off"
	eventRenewed   = "renewed"
	// eventChanged is any other change of a held lock, such as one of its reason.
	eventChanged = "changed"
	// eventReleased is the end of a grant before its time, by its holder or by force.
	eventReleased = "released"
	eventExpired  = "expired"
)

// event is one event about one lock.
type event struct {
	name string
	// lock is as stored or, if it is no longer held, as it was last.
	lock *v1alpha1.Lock
	// version is the resourceVersion to go on from. Empty if nothing was written.
	version string
}

// history follows the locks of a stream, and tells what happened to them. What has been told is told
// once: an end by time is told when the time has come, not again when the object is deleted.
type history struct {
	// held are the locks that are held as far as was told, by the names of their objects.
	held map[string]*v1alpha1.Lock
	// next is when to look for the next that expires: not later than the first does. Zero if none
	// does. It may be earlier, so that a renewal need not look at all others.
	next time.Time
}

// begin returns the locks of a stream that are held at its beginning.
func begin(present []*v1alpha1.Lock, isWanted func(*v1alpha1.Lock) bool, now time.Time) *history {
	h := &history{held: map[string]*v1alpha1.Lock{}}
	for _, each := range present {
		if isWanted(each) && !rules.Expired(each, now) {
			h.held[each.Name] = each
		}
	}
	h.findNext()
	return h
}

func (h *history) findNext() {
	h.next = time.Time{}
	for _, each := range h.held {
		if end := each.Spec.ExpireTime; h.next.IsZero() || end.Time.Before(h.next) {
			h.next = end.Time
		}
	}
}

// expire returns the locks that have ended by their time.
func (h *history) expire(now time.Time) []event {
	var ended []event
	for name, each := range h.held {
		if rules.Expired(each, now) {
			delete(h.held, name)
			ended = append(ended, event{name: eventExpired, lock: each})
		}
	}
	h.findNext()
	return ended
}

// follow returns what a change means.
func (h *history) follow(change lock.Change, now time.Time) []event {
	current := change.Lock
	former := h.held[current.Name]
	if former != nil && former.ResourceVersion == current.ResourceVersion && !change.IsGone {
		return nil // A list of the watch has repeated it.
	}
	if change.IsGone || rules.Expired(current, now) {
		delete(h.held, current.Name)
		switch {
		case former == nil:
			return nil
		case rules.Expired(former, now) || !change.IsGone:
			return []event{{eventExpired, former, current.ResourceVersion}}
		}
		return []event{{eventReleased, former, current.ResourceVersion}}
	}
	h.held[current.Name] = current
	if end := current.Spec.ExpireTime.Time; h.next.IsZero() || end.Before(h.next) {
		h.next = end
	}
	return eventsOf(former, current)
}

// eventsOf returns what has happened to a lock that is held, and was as former says or, if that is
// nil, was not held.
func eventsOf(former, current *v1alpha1.Lock) []event {
	switch {
	case former == nil:
		return []event{{eventAcquired, current, current.ResourceVersion}}
	case !former.Spec.AcquireTime.Equal(current.Spec.AcquireTime):
		if rules.Expired(former, current.Spec.AcquireTime.Time) {
			return []event{{eventExpired, former, ""}, {eventAcquired, current, current.ResourceVersion}}
		}
		return []event{{eventHandedOff, current, current.ResourceVersion}}
	case !former.Spec.RenewTime.Equal(current.Spec.RenewTime):
		return []event{{eventRenewed, current, current.ResourceVersion}}
	}
	return []event{{eventChanged, current, current.ResourceVersion}}
}
