package lock

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// grant identifies one grant of one object and what is needed to end it.
type grant struct {
	name            types.NamespacedName
	owner           string
	acquireTime     time.Time
	expireTime      time.Time
	uid             types.UID
	resourceVersion string
	// isUnanswered says that it is not known whether the write happened; uid and
	// resourceVersion are then those of what it was to replace, if anything.
	isUnanswered bool
}

func grantOf(lock *v1alpha1.Lock) grant {
	return grant{
		name:            types.NamespacedName{Namespace: lock.Namespace, Name: lock.Name},
		owner:           lock.Spec.Owner,
		acquireTime:     lock.Spec.AcquireTime.Time,
		expireTime:      lock.Spec.ExpireTime.Time,
		uid:             lock.UID,
		resourceVersion: lock.ResourceVersion,
	}
}

// matches reports whether the object still records this grant.
func (g grant) matches(lock *v1alpha1.Lock) bool {
	return lock.Spec.Owner == g.owner && lock.Spec.AcquireTime != nil && lock.Spec.AcquireTime.Time.Equal(g.acquireTime)
}

// grants remembers what this engine granted, so that a release needs no read. It
// is a hint: what it says is checked by the preconditions of the delete.
type grants struct {
	mu      sync.Mutex
	byName  map[types.NamespacedName]grant
	sweepAt int
}

// minSweep is the size below which looking for expired grants is not worth it.
const minSweep = 1024

func newGrants() *grants {
	return &grants{byName: map[types.NamespacedName]grant{}, sweepAt: minSweep}
}

func (g *grants) put(lock *v1alpha1.Lock, now time.Time) {
	entry := grantOf(lock)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.byName[entry.name] = entry
	if len(g.byName) < g.sweepAt {
		return
	}
	for name, known := range g.byName {
		if !known.expireTime.After(now) {
			delete(g.byName, name)
		}
	}
	// Twice what is left, so that sweeping stays cheap per grant.
	g.sweepAt = max(minSweep, 2*len(g.byName))
}

// take removes and returns the grant under the name if it has this owner and has
// not expired. Whoever takes it releases it; a second release finds nothing.
func (g *grants) take(name types.NamespacedName, owner string, now time.Time) (grant, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	known, ok := g.byName[name]
	if !ok || known.owner != owner || !known.expireTime.After(now) {
		return grant{}, false
	}
	delete(g.byName, name)
	return known, true
}
