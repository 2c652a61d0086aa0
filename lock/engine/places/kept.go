// Package places keeps the places in line of callers that have left without their locks.
package places

import (
	"container/list"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/lock/rules"
)

const (
	// KeepFor is how long a place is kept.
	KeepFor = 5 * time.Second
	// maxKept bounds the memory of a [Kept], to some ten megabytes.
	maxKept = 50_000
)

// Kept are the places of callers that have left a line without the lock: one that comes again within [KeepFor]
// takes its place up. Of more than 50,000 the oldest are forgotten. Not safe for
// concurrent use. The zero value keeps none.
type Kept struct {
	byCaller map[Caller]*list.Element
	// oldest has the places in the order in which they end.
	oldest list.List
}

// Caller is one that waits for a lock. Callers of other identities are others, also with an equal owner token,
// which may be a name.
type Caller struct {
	Lock                     types.NamespacedName
	Owner, Holder, HolderUID string
}

// CallerOf returns the caller that wants the lock by an acquisition.
func CallerOf(of types.NamespacedName, by *rules.Acquisition) Caller {
	return Caller{Lock: of, Owner: by.Owner, Holder: by.Holder, HolderUID: by.HolderUID}
}

// Place is that of a caller which came at Since.
type Place struct {
	Caller
	Since time.Time
}

type place struct {
	Place
	until time.Time
}

// Keep keeps the place of a caller that has left. Of two places of one caller it keeps the earlier.
func (k *Kept) Keep(left Place, now time.Time) {
	if earlier, isKept := k.Take(left.Caller, now); isKept && earlier.Before(left.Since) {
		left.Since = earlier
	}
	if k.oldest.Len() >= maxKept {
		k.forget(k.oldest.Front())
	}
	if k.byCaller == nil {
		k.byCaller = map[Caller]*list.Element{}
	}
	k.byCaller[left.Caller] = k.oldest.PushBack(place{Place: left, until: now.Add(KeepFor)})
}

// Take returns since when a caller that comes again has waited, and forgets it.
func (k *Kept) Take(of Caller, now time.Time) (since time.Time, isKept bool) {
	k.expire(now)
	element := k.byCaller[of]
	if element == nil {
		return time.Time{}, false
	}
	k.forget(element)
	return placeOf(element).Since, true
}

// Has reports whether the place of a caller is kept.
func (k *Kept) Has(of Caller, now time.Time) bool {
	k.expire(now)
	return k.byCaller[of] != nil
}

func (k *Kept) expire(now time.Time) {
	for oldest := k.oldest.Front(); oldest != nil && !now.Before(placeOf(oldest).until); oldest = k.oldest.Front() {
		k.forget(oldest)
	}
}

func (k *Kept) forget(element *list.Element) {
	k.oldest.Remove(element)
	delete(k.byCaller, placeOf(element).Caller)
}

func placeOf(element *list.Element) place {
	return element.Value.(place)
}
