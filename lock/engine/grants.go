package engine

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

// grant is one grant of a lock that this engine made, or tried to make in a write that may have
// happened.
type grant struct {
	// lock holds the fields of the object that ending the grant and recording its end take. It is
	// not modified once other goroutines know the grant.
	lock *v1alpha1.Lock
	// isUnanswered says that the write may or may not have happened. UID and resourceVersion of
	// lock are then those of the object that it was to replace, if any.
	isUnanswered bool
	// stamped is when the write was stamped, if an acquire has sent it.
	stamped servertime.Reading
	// isEnding says that a delete of the grant went unanswered.
	isEnding bool
	// triesBefore makes this, if it is set, the grant of any try of the acquisition before that one, see [rules.SplitTry]:
	// another engine may have made it.
	triesBefore string
	grantAudit
}

func grantOf(lock *v1alpha1.Lock) grant {
	spec := &lock.Spec
	part := &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: lock.Namespace, Name: lock.Name, UID: lock.UID, ResourceVersion: lock.ResourceVersion,
			DeletionTimestamp: lock.DeletionTimestamp,
		},
		Spec: v1alpha1.LockSpec{
			Key: spec.Key, Scope: spec.Scope, Function: spec.Function, Owner: spec.Owner, Holder: spec.Holder, HolderUID: spec.HolderUID,
			AcquireTime: spec.AcquireTime.DeepCopy(), RenewTime: spec.RenewTime.DeepCopy(), ExpireTime: spec.ExpireTime.DeepCopy(),
		},
	}
	if token, err := lock.FencingToken(); err == nil {
		part.Spec.FencingToken = &token
	}
	if id := lock.Annotations[v1alpha1.AcquisitionAnnotation]; id != "" {
		part.Annotations = map[string]string{v1alpha1.AcquisitionAnnotation: id}
	}
	return grant{lock: part}
}

func nameOf(lock *v1alpha1.Lock) types.NamespacedName {
	return types.NamespacedName{Namespace: lock.Namespace, Name: lock.Name}
}

// matches reports whether the object records this grant.
func (g grant) matches(lock *v1alpha1.Lock) bool {
	id, acquired := g.lock.Annotations[v1alpha1.AcquisitionAnnotation], g.lock.Spec.AcquireTime
	switch {
	case lock.Spec.Owner != g.lock.Spec.Owner:
		return false
	case g.triesBefore != "":
		acquisition, _ := rules.SplitTry(id)
		recorded, try := rules.SplitTry(lock.Annotations[v1alpha1.AcquisitionAnnotation])
		return recorded == acquisition && try < g.triesBefore
	case id != "" && lock.Annotations[v1alpha1.AcquisitionAnnotation] != id:
		return false
	case acquired == nil: // Admission stamps the grant, or another engine made it.
		return id != ""
	}
	return acquired.Equal(lock.Spec.AcquireTime)
}

// isRenewedIn reports whether the object, which records this grant, has been renewed since this
// engine last saw it: its holder knows of the grant, and relies on it.
func (g grant) isRenewedIn(lock *v1alpha1.Lock) bool {
	seen := g.lock.Spec.RenewTime
	if seen == nil { // Admission stamps the grant.
		seen = lock.Spec.AcquireTime
	}
	return !lock.Spec.RenewTime.Equal(seen)
}

// isProvenBy reports whether the proof permits ending or renewing the grant, and the grant has not
// expired.
func (g grant) isProvenBy(proof lock.Proof, now time.Time) bool {
	return rules.Release(g.lock, proof, now) == nil
}

// grants remembers the grants of this engine; a release then needs no read. An entry is a hint:
// the preconditions of the delete check it.
type grants struct {
	// seen returns the lock as the informer shows it, or nil.
	seen func(types.NamespacedName) *v1alpha1.Lock

	mu sync.Mutex
	// byName shares what the informer has shown, too: it is in memory as long as the lock lasts.
	byName  map[types.NamespacedName]*v1alpha1.Lock
	sweepAt int
}

// minSweep is the size below which grants keeps expired entries.
const minSweep = 1024

func newGrants(seen func(types.NamespacedName) *v1alpha1.Lock) *grants {
	return &grants{seen: seen, byName: map[types.NamespacedName]*v1alpha1.Lock{}, sweepAt: minSweep}
}

// put remembers a grant or its renewal, unless it knows a later one: answers may arrive out of
// order. It forgets a lock whose end takes the whole object: one with finalizers, or one that is
// not to be handed off.
func (g *grants) put(lock *v1alpha1.Lock, now time.Time) {
	granted, name := grantOf(lock).lock, nameOf(lock)
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.byName[name]; known != nil && rules.IsNewer(known.ResourceVersion, lock.ResourceVersion) {
		return
	}
	if len(lock.Finalizers) > 0 || !rules.IsReusable(lock) {
		delete(g.byName, name)
		return
	}
	g.byName[name] = granted
	g.share(name)
	if len(g.byName) < g.sweepAt {
		return
	}
	for name, known := range g.byName {
		if rules.Expired(known, now) {
			delete(g.byName, name)
		}
	}
	// Twice the rest keeps the cost per grant constant.
	g.sweepAt = max(minSweep, 2*len(g.byName))
}

// shown takes in that the informer has shown a lock. It forgets a grant that another engine has replaced.
func (g *grants) shown(name types.NamespacedName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.share(name)
	known, seen := g.byName[name], g.seen(name)
	if known != nil && seen != nil && rules.IsNewer(seen.ResourceVersion, known.ResourceVersion) && !grantOf(known).matches(seen) {
		delete(g.byName, name)
	}
}

// share needs the mutex.
func (g *grants) share(name types.NamespacedName) {
	known := g.byName[name]
	if known == nil {
		return
	}
	if seen := g.seen(name); seen != known && isSameState(seen, known) {
		g.byName[nameOf(seen)] = seen // With the name that is in memory anyway.
	}
}

// isSameState reports whether both are one state of one object. Either may be nil, which is none.
func isSameState(one, other *v1alpha1.Lock) bool {
	return one != nil && other != nil && one.UID == other.UID && one.ResourceVersion == other.ResourceVersion
}

// take removes and returns the grant under the name if the proof permits and it has not expired.
// The caller releases it; a second release finds nothing.
func (g *grants) take(name types.NamespacedName, proof lock.Proof, now time.Time) (grant, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	known, ok := g.proven(name, proof, now)
	if ok {
		delete(g.byName, name)
	}
	return known, ok
}

// find returns the grant under the name if the proof permits and it has not expired.
func (g *grants) find(name types.NamespacedName, proof lock.Proof, now time.Time) (grant, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.proven(name, proof, now)
}

// proven needs the mutex.
func (g *grants) proven(name types.NamespacedName, proof lock.Proof, now time.Time) (grant, bool) {
	kept := g.byName[name]
	if kept == nil {
		return grant{}, false
	}
	known := grantOf(kept)
	if !known.isProvenBy(proof, now) {
		return grant{}, false
	}
	return known, true
}

// forget drops the grant of an object that is known to have ended: a later delete is not what ends
// it.
func (g *grants) forget(name types.NamespacedName, uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.byName[name]; known != nil && known.UID == uid {
		delete(g.byName, name)
	}
}

// get returns the lock under the name as the engine has granted or renewed it last, or nil.
func (g *grants) get(name types.NamespacedName) *v1alpha1.Lock {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.byName[name]
}

// uid returns the UID of the lock under the name that the engine has granted, or "".
func (g *grants) uid(name types.NamespacedName) types.UID {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.byName[name]; known != nil {
		return known.UID
	}
	return ""
}

// newestState returns the newest state of a lock that is known, given the one that the informer shows, or nil. IsOwn says
// that the engine has granted or renewed the lock in that state.
type newestState func(name types.NamespacedName, seen *v1alpha1.Lock) (newest *v1alpha1.Lock, isOwn bool)

// newest is a [newestState].
func (g *grants) newest(name types.NamespacedName, seen *v1alpha1.Lock) (newest *v1alpha1.Lock, isOwn bool) {
	own := g.get(name)
	if isNewerState(own, seen) {
		return own, true
	}
	return seen, false
}

// isNewerState reports whether own is the state of the object that seen shows, or a newer one of it. Either may be nil.
// Of an object that the informer does not show, it may have shown the end.
func isNewerState(own, seen *v1alpha1.Lock) bool {
	return own != nil && seen != nil && own.UID == seen.UID && !rules.IsNewer(seen.ResourceVersion, own.ResourceVersion)
}
