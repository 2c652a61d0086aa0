package rest

import (
	"hash/maphash"
	"sync/atomic"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// encodedLocks remembers the JSON of locks that streams have told lately: all streams of a namespace tell
// the same object of the engine. It is safe for concurrent use.
type encodedLocks struct {
	seed maphash.Seed
	// recent are by the hash of the resourceVersion. Another lock of the same hash takes the place.
	recent [256]atomic.Pointer[encodedLock]
}

type encodedLock struct {
	lock *v1alpha1.Lock
	text []byte
}

func newEncodedLocks() *encodedLocks { return &encodedLocks{seed: maphash.MakeSeed()} }

// encode returns the JSON of a lock as callers are told it. The lock must not change any more.
func (e *encodedLocks) encode(told *v1alpha1.Lock) []byte {
	place := &e.recent[maphash.String(e.seed, told.ResourceVersion)%uint64(len(e.recent))]
	if known := place.Load(); known != nil && known.lock == told {
		return known.text
	}
	added := &encodedLock{told, encode(describe(told))}
	place.Store(added)
	return added.text
}
