package engine

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// An engine hands a lock off to its own waiters only so many times and for so long. Then it
// deletes the lock, and the waiters of all engines compete. Without this bound, waiters of other
// engines would starve; 64 keeps its cost, one more write per series, below two per cent.
const (
	maxHandOffs    = 64
	maxHandOffTime = 10 * time.Second
)

const (
	// quickRelease is how soon after it was handed off a lock is released so quickly that the one who had it before may
	// come again at the same moment: it learns of its release when the new holder learns of its grant.
	quickRelease = 5 * time.Millisecond
	// followFor is how long such a release waits for that caller. A delete, a create and the news of both take longer
	// than the one write of a hand-off.
	followFor = time.Millisecond
)

// series counts the hand-offs of one object, which lasts for as long as the object: others get their chance when it is
// deleted. A nil series has none. It is not modified.
type series struct {
	uid      types.UID
	handOffs int
	// since is when the first hand-off was made, and last the last one.
	since, last time.Time
}

// mayGoOn reports whether the object may be handed off.
func (s *series) mayGoOn(uid types.UID, now time.Time) bool {
	return !s.isOf(uid) || s.handOffs < maxHandOffs && now.Sub(s.since) < maxHandOffTime
}

// mayBeFollowed reports whether the object was handed off so lately that the next caller may be about to come.
func (s *series) mayBeFollowed(uid types.UID, now time.Time) bool {
	return s.isOf(uid) && now.Sub(s.last).Abs() <= quickRelease && s.mayGoOn(uid, now)
}

// next returns the series after one more hand-off.
func (s *series) next(uid types.UID, now time.Time) *series {
	if !s.isOf(uid) {
		return &series{uid: uid, handOffs: 1, since: now, last: now}
	}
	return &series{uid: uid, handOffs: s.handOffs + 1, since: s.since, last: now}
}

func (s *series) isOf(uid types.UID) bool { return s != nil && s.uid == uid }
