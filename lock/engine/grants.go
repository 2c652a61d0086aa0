package engine

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// grant identifies one grant of one object and what is needed to end it.
type grant struct {
	name            types.NamespacedName
	owner           string
	holder          string
	acquireTime     time.Time
	expireTime      time.Time
	uid             types.UID
	resourceVersion string
	// key, scope and function are as stored, since they are immutable.
	key      string
	scope    v1alpha1.Scope
	function string
	// acquisition is the id of what admission has stamped or is to stamp, or empty.
	acquisition string
	// isUnanswered says that it is not known whether the write happened; uid and
	// resourceVersion are then those of what it was to replace, if anything.
	isUnanswered bool
	grantAudit
}

func grantOf(lock *v1alpha1.Lock) grant {
	spec := &lock.Spec
	granted := grant{
		name:            nameOf(lock),
		owner:           spec.Owner,
		holder:          spec.Holder,
		uid:             lock.UID,
		resourceVersion: lock.ResourceVersion,
		key:             spec.Key,
		scope:           spec.Scope,
		function:        spec.Function,
		acquisition:     lock.Annotations[v1alpha1.AcquisitionAnnotation],
		grantAudit:      grantAudit{holder: spec.Holder},
	}
	if token, err := lock.FencingToken(); err == nil {
		granted.token = token
	}
	if spec.AcquireTime != nil {
		granted.acquireTime = spec.AcquireTime.Time
	}
	if spec.ExpireTime != nil {
		granted.expireTime = spec.ExpireTime.Time
	}
	return granted
}

func nameOf(lock *v1alpha1.Lock) types.NamespacedName {
	return types.NamespacedName{Namespace: lock.Namespace, Name: lock.Name}
}

// matches reports whether the object still records this grant.
func (g grant) matches(lock *v1alpha1.Lock) bool {
	if g.acquisition != "" {
		return lock.Annotations[v1alpha1.AcquisitionAnnotation] == g.acquisition && lock.Spec.Owner == g.owner
	}
	return lock.Spec.Owner == g.owner && lock.Spec.AcquireTime != nil && lock.Spec.AcquireTime.Time.Equal(g.acquireTime)
}

// object returns what a write that replaces the grant has to know of the lock, and the
// audit of its end.
func (g grant) object() *v1alpha1.Lock {
	object := &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.name.Namespace, Name: g.name.Name, UID: g.uid, ResourceVersion: g.resourceVersion},
		Spec: v1alpha1.LockSpec{
			Key: g.key, Scope: g.scope, Function: g.function, Owner: g.owner, Holder: g.holder,
			AcquireTime: new(v1alpha1.NewTimestamp(g.acquireTime)), ExpireTime: new(v1alpha1.NewTimestamp(g.expireTime)),
		},
	}
	if g.token != 0 {
		object.Spec.FencingToken = &g.token
	}
	return object
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

// put remembers a grant, or its renewal, unless a later one is known: answers may
// overtake each other.
func (g *grants) put(lock *v1alpha1.Lock, now time.Time) {
	entry := grantOf(lock)
	g.mu.Lock()
	defer g.mu.Unlock()
	if known, ok := g.byName[entry.name]; ok && rules.IsNewer(known.resourceVersion, entry.resourceVersion) {
		return
	}
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

// take removes and returns the grant under the name if the proof is its and it has
// not expired. Whoever takes it releases it; a second release finds nothing.
func (g *grants) take(name types.NamespacedName, proof lock.Proof, now time.Time) (grant, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	known, ok := g.byName[name]
	if !ok || !proof.Entitles(known.owner, known.holder) || !known.expireTime.After(now) {
		return grant{}, false
	}
	delete(g.byName, name)
	return known, true
}

// find returns the grant under the name if the proof is its and it has not expired.
func (g *grants) find(name types.NamespacedName, proof lock.Proof, now time.Time) (grant, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	known, ok := g.byName[name]
	return known, ok && proof.Entitles(known.owner, known.holder) && known.expireTime.After(now)
}
