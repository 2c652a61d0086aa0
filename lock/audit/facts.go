package audit

import (
	"strings"
	"time"
	"unicode/utf8"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// Of returns a record of the event with the fields of the grant. Pass the object as stored before
// the write that ended the grant: the resourceVersion of a deletion is no fencing token.
func Of(event Event, via Via, object *v1alpha1.Lock) Record {
	spec := &object.Spec
	record := Record{
		Schema:    Schema,
		Event:     event,
		Via:       via,
		Namespace: object.Namespace,
		Lock:      object.Name,
		UID:       string(object.UID),
		Key:       spec.Key,
		Scope:     spec.Scope,
		Function:  spec.Function,
		Holder:    spec.Holder,
		OwnerHash: lock.Fingerprint(spec.Owner),

		ResourceVersion: object.ResourceVersion,
	}
	if token, err := object.FencingToken(); err == nil {
		record.FencingToken = token
	}
	if spec.AcquireTime != nil {
		record.AcquireTime = *spec.AcquireTime
	}
	if spec.ExpireTime != nil {
		record.ExpireTime = *spec.ExpireTime
	}
	return record
}

// Begun returns the record of a grant: [Granted], [TakenOver] or [HandedOn]. Its actor is
// the holder.
func Begun(event Event, via Via, lock *v1alpha1.Lock) Record {
	record := Of(event, via, lock)
	record.Time, record.Actor = record.AcquireTime, record.Holder
	return record
}

// lateShare is the part of the time of a renewal that is left when the next one is late: one in so many.
const lateShare = 5

// Prolonged returns the record of a renewal. The object is as stored after it, and before is as it was
// stored before, nil if that is not known.
func Prolonged(via Via, actor string, before, lock *v1alpha1.Lock) Record {
	record := Of(Renewed, via, lock)
	record.Actor = actor
	if lock.Spec.RenewTime != nil {
		record.Time = *lock.Spec.RenewTime
	}
	if before != nil && before.Spec.RenewTime != nil && before.Spec.ExpireTime != nil {
		left := before.Spec.ExpireTime.Sub(record.Time.Time)
		record.IsLate = left < before.Spec.ExpireTime.Sub(before.Spec.RenewTime.Time)/lateShare
	}
	return record
}

// Ended returns the record of the end of the grant, which was found at the given time.
func Ended(event Event, reason Reason, via Via, actor string, lock *v1alpha1.Lock, at time.Time) Record {
	record := Of(event, via, lock)
	record.Reason, record.Actor, record.Time = reason, actor, v1alpha1.NewTimestamp(at)
	if !record.AcquireTime.IsZero() {
		held := heldFor(&record, at).Seconds()
		record.HeldSeconds = &held
	}
	return record
}

// heldFor is never negative, even if clocks differ by more than the lock's life.
func heldFor(record *Record, at time.Time) time.Duration {
	if !record.ExpireTime.IsZero() && record.ExpireTime.Before(at) {
		at = record.ExpireTime.Time
	}
	return max(0, at.Sub(record.AcquireTime.Time))
}

// Bounded returns a text as valid UTF-8, cut to [MaxMessageBytes].
func Bounded(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= MaxMessageBytes {
		return text
	}
	return strings.Clone(beginning(text, MaxMessageBytes)) // The rest is not kept in memory.
}

// BoundedName returns a name that is cut to [MaxNameBytes], with [CutMark] at its end then.
func BoundedName(name string) string {
	if len(name) <= MaxNameBytes {
		return name
	}
	return beginning(name, MaxNameBytes-len(CutMark)) + CutMark
}

// beginning returns at most so many bytes of a longer text, without a part of a rune at the end.
func beginning(text string, size int) string {
	end := size
	for end > size-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// Bound cuts the texts of the record, which may come from a request of any size. The object of the record
// is copied if it has to change.
func (r *Record) Bound() {
	for _, text := range []*string{&r.Key, &r.Function, &r.Message} {
		if len(*text) > MaxMessageBytes {
			*text = Bounded(*text)
		}
	}
	r.Scope = v1alpha1.Scope(BoundedName(string(r.Scope)))
	for _, name := range []*string{&r.Actor, &r.Namespace, &r.Lock, &r.UID, &r.Holder, &r.OwnerHash, &r.Operation, &r.Door, &r.Client} {
		*name = BoundedName(*name)
	}
	if r.Object != nil {
		object := Object{
			Group: BoundedName(r.Object.Group), Resource: BoundedName(r.Object.Resource),
			Subresource: BoundedName(r.Object.Subresource), Name: BoundedName(r.Object.Name),
		}
		if object != *r.Object {
			r.Object = &object
		}
	}
}
