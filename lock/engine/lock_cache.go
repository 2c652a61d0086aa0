package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine/keywatch"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

// Informer reports changes to Locks. Shared informers of client-go and of controller-runtime's
// cache implement it.
type Informer interface {
	AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
}

// KeyInformer is an [Informer] that reports changes only to the locks in use; see
// [keywatch.Informer].
type KeyInformer interface {
	Informer
	// Use has the changes of a lock reported until release is called. Known is the lock as the engine
	// has seen it, or nil. A use that mayBeBrief is not worth a watch at once.
	Use(name types.NamespacedName, known *v1alpha1.Lock, mayBeBrief bool) (release func())
}

// lockCache has what the engine knows of each lock: what the informer shows, and the grants of the engine.
type lockCache struct {
	// changed is called for each change, in order and without the mutex. Forgotten is called when
	// the informer has ceased to report a lock.
	changed   func(types.NamespacedName, lock.Change)
	forgotten func(types.NamespacedName)

	// completed is closed when the informer has shown all locks that there were when it began. One that
	// reports only the locks in use never does.
	completed chan struct{}

	mu sync.Mutex
	// locks are those of each namespace that has any, by name.
	locks map[string]map[string]known
	// number is how many there are, and sweepAt how many there are when grants that have expired are forgotten.
	number, sweepAt int
	// latest is the latest resourceVersion of all that the informer has shown.
	latest string
	// receivers are those of one lock, of a namespace if the name is empty, or of all if both are. It is nil once they are
	// closed.
	receivers map[types.NamespacedName]map[*receiver]struct{}
}

func newLockCache(changed func(types.NamespacedName, lock.Change), forgotten func(types.NamespacedName)) *lockCache {
	return &lockCache{
		changed:   changed,
		forgotten: forgotten,
		completed: make(chan struct{}),
		locks:     map[string]map[string]known{},
		sweepAt:   minSweep,
		receivers: map[types.NamespacedName]map[*receiver]struct{}{},
	}
}

// known is what the engine knows of one lock.
type known struct {
	// shown is the lock as the informer shows it: it may be behind etcd, never ahead. Nil if it shows none.
	shown *v1alpha1.Lock
	// own is the lock as this engine has granted or renewed it last; nil if it has not, or knows that the grant is over. A
	// release then needs no read. It is a hint: the preconditions of the write check it. It is shown itself in the same state,
	// which is in memory anyway.
	own *v1alpha1.Lock
	// series are the hand-offs of an object that has the name or had it, or nil.
	series *series
}

// minSweep is the number of locks below which grants that have expired are kept.
const minSweep = 1024

var _ keywatch.Handler = (*lockCache)(nil)

// OnAdd implements [cache.ResourceEventHandler].
func (c *lockCache) OnAdd(object any, _ bool) { c.record(object, false) }

// OnUpdate implements [cache.ResourceEventHandler].
func (c *lockCache) OnUpdate(_, object any) { c.record(object, false) }

// OnDelete implements [cache.ResourceEventHandler].
func (c *lockCache) OnDelete(object any) {
	if unseen, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unseen.Obj
	}
	c.record(object, true)
}

// OnAbsent implements [keywatch.Handler].
func (c *lockCache) OnAbsent(name types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.send(name, lock.Change{IsGone: true})
}

// complete records, once, that the informer has shown all locks: what it has not shown does not exist.
func (c *lockCache) complete() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.completed)
	for name := range c.receivers {
		if c.of(name).shown == nil {
			c.send(name, lock.Change{IsGone: true})
		}
	}
}

func (c *lockCache) isComplete() bool {
	select {
	case <-c.completed:
		return true
	default:
		return false
	}
}

// OnForget implements [keywatch.Handler].
func (c *lockCache) OnForget(name types.NamespacedName) {
	c.mu.Lock()
	of := c.of(name)
	of.shown = nil
	c.set(name, of)
	c.mu.Unlock()
	c.forgotten(name)
}

func (c *lockCache) record(object any, isGone bool) {
	seen, isLock := object.(*v1alpha1.Lock)
	if !isLock {
		return
	}
	name, change := nameOf(seen), lock.Change{Lock: seen, IsGone: isGone}
	c.mu.Lock()
	c.show(name, seen, isGone)
	if c.latest == "" || rules.IsNewer(seen.ResourceVersion, c.latest) {
		c.latest = seen.ResourceVersion
	}
	c.send(name, change)
	c.send(types.NamespacedName{Namespace: name.Namespace}, change)
	c.send(types.NamespacedName{}, change)
	c.mu.Unlock()
	c.changed(name, change)
}

// of needs the mutex.
func (c *lockCache) of(name types.NamespacedName) known { return c.locks[name.Namespace][name.Name] }

// set needs the mutex.
func (c *lockCache) set(name types.NamespacedName, to known) {
	locks := c.locks[name.Namespace]
	c.number -= len(locks)
	switch {
	case to != known{} && locks == nil:
		locks = map[string]known{name.Name: to}
		c.locks[name.Namespace] = locks
	case to != known{}:
		locks[name.Name] = to
	default:
		delete(locks, name.Name)
	}
	c.number += len(locks)
	if len(locks) == 0 {
		delete(c.locks, name.Namespace)
	}
}

// show takes in what the informer shows. A grant that another engine has replaced is forgotten. It needs the mutex.
func (c *lockCache) show(name types.NamespacedName, seen *v1alpha1.Lock, isGone bool) {
	before := c.of(name)
	now := before
	now.shown = seen
	switch {
	case isGone:
		now.shown = nil
		now.end(seen.UID)
	case isSameState(seen, before.own):
		now.own = seen
	case before.own != nil && rules.IsNewer(seen.ResourceVersion, before.own.ResourceVersion) && !grantOf(before.own).matches(seen):
		now.own = nil
	}
	if before.shown == nil {
		c.set(name, known{}) // The name of the object is in memory anyway.
	}
	c.set(name, now)
}

// get returns the lock as last shown, or nil. Callers must not modify it.
func (c *lockCache) get(name types.NamespacedName) *v1alpha1.Lock {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of(name).shown
}

// own returns the lock as the engine has granted or renewed it last, or nil.
func (c *lockCache) own(name types.NamespacedName) *v1alpha1.Lock {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of(name).own
}

// newest returns the newest state of a lock that is known, or nil. IsOwn says that the engine has granted or renewed the lock
// in that state.
func (c *lockCache) newest(name types.NamespacedName) (newest *v1alpha1.Lock, isOwn bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.of(name)
	if isNewerState(of.own, of.shown) {
		return of.own, true
	}
	return of.shown, false
}

// put remembers a grant or its renewal, unless it knows a later one: answers may arrive out of
// order. It forgets a lock whose end takes the whole object: one with finalizers, or one that is
// not to be handed off.
func (c *lockCache) put(granted *v1alpha1.Lock, now time.Time) {
	name := nameOf(granted)
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.of(name)
	switch {
	case of.own != nil && rules.IsNewer(of.own.ResourceVersion, granted.ResourceVersion):
		return
	case len(granted.Finalizers) > 0 || !rules.IsReusable(granted):
		of.own = nil
	case isSameState(of.shown, granted):
		of.own = of.shown
	default:
		of.own = grantOf(granted).lock
	}
	c.set(name, of)
	c.sweep(now)
}

// sweep needs the mutex.
func (c *lockCache) sweep(now time.Time) {
	if c.number < c.sweepAt {
		return
	}
	for namespace, locks := range c.locks {
		for name, of := range locks {
			if of.own == nil || rules.Expired(of.own, now) {
				c.set(types.NamespacedName{Namespace: namespace, Name: name}, known{shown: of.shown})
			}
		}
	}
	c.sweepAt = max(minSweep, 2*c.number) // Keeps the cost per grant constant.
}

// take forgets and returns the grant under the name if the proof permits and it has not expired.
// The caller releases it; a second release finds nothing.
func (c *lockCache) take(name types.NamespacedName, proof lock.Proof, now time.Time) (grant, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.proven(name, proof, now)
	if ok {
		of := c.of(name)
		of.own = nil
		c.set(name, of)
	}
	return found, ok
}

// find returns the grant under the name if the proof permits and it has not expired.
func (c *lockCache) find(name types.NamespacedName, proof lock.Proof, now time.Time) (grant, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proven(name, proof, now)
}

// proven needs the mutex.
func (c *lockCache) proven(name types.NamespacedName, proof lock.Proof, now time.Time) (grant, bool) {
	own := c.of(name).own
	if own == nil {
		return grant{}, false
	}
	found := grantOf(own)
	if !found.isProvenBy(proof, now) {
		return grant{}, false
	}
	return found, true
}

// forget drops the grant of an object that is known to have ended: a later delete is not what ends
// it.
func (c *lockCache) forget(name types.NamespacedName, uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.of(name)
	of.end(uid)
	c.set(name, of)
}

// end drops what is known of the grants of an object that has ended.
func (k *known) end(uid types.UID) {
	if k.own != nil && k.own.UID == uid {
		k.own = nil
	}
	if k.series.isOf(uid) {
		k.series = nil
	}
}

// series returns the hand-offs of this engine under the name.
func (c *lockCache) series(name types.NamespacedName) *series {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of(name).series
}

func (c *lockCache) countHandOff(granted *v1alpha1.Lock, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.of(nameOf(granted))
	of.series = of.series.next(granted.UID, now)
	c.set(nameOf(granted), of)
}

// isSameState reports whether both are one state of one object. Either may be nil, which is none.
func isSameState(one, other *v1alpha1.Lock) bool {
	return one != nil && other != nil && one.UID == other.UID && one.ResourceVersion == other.ResourceVersion
}

// isNewerState reports whether own is the state of the object that seen shows, or a newer one of it. Either may be nil.
// Of an object that the informer does not show, it may have shown the end.
func isNewerState(own, seen *v1alpha1.Lock) bool {
	return own != nil && seen != nil && own.UID == seen.UID && !rules.IsNewer(seen.ResourceVersion, own.ResourceVersion)
}

// hasRoom reports whether a namespace has fewer locks than limit, or has the named one, which then need
// not be created.
func (c *lockCache) hasRoom(name types.NamespacedName, limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	locks := c.locks[name.Namespace]
	if present := c.of(name); len(locks) < limit || present.shown != nil || present.own != nil {
		return true
	}
	number := 0 // The informer may have missed the beginning and the end of a grant.
	for _, of := range locks {
		if of.shown != nil || of.own != nil && (c.latest == "" || rules.IsNewer(of.own.ResourceVersion, c.latest)) {
			number++
		}
	}
	return number < limit
}

// Watch implements [lock.Backend] with the engine's informer; it makes no request. The states come
// from a cache, and the first may be behind what the caller knows already: compare
// resourceVersions. With a [KeyInformer] the first may come a second later, after a request of the
// informer, which watches up to [keywatch.MaxNames] locks: the Watch of one beyond them, or of one whose place a waiter for
// another has taken, tells nothing until there is room. With any other it may come when the informer has shown all locks.
// Without an informer the error matches [errors.ErrUnsupported].
func (e *Engine) Watch(ctx context.Context, namespace string, key v1alpha1.FullKey) (<-chan lock.Change, error) {
	if !e.hasInformer {
		return nil, fmt.Errorf("watch %s: the engine has no informer: %w", key, errors.ErrUnsupported)
	}
	name := types.NamespacedName{Namespace: namespace, Name: key.ObjectName()}
	changes := e.lockCache.watch(ctx, name)
	if e.keyInformer != nil {
		// Most holders are done before a watch of their lock would be worth a request.
		context.AfterFunc(ctx, e.keyInformer.Use(name, e.lockCache.own(name), true))
	}
	return changes, nil
}

// receiver receives the states of one lock, of all locks of a namespace, or of all. The mutex of lockCache guards sending
// and closing.
type receiver struct {
	changes chan lock.Change
	// isForLatest says that a state replaces one that was not received yet. Otherwise a receiver that is too slow loses
	// its channel, not a change.
	isForLatest bool
}

// send needs the mutex.
func (c *lockCache) send(name types.NamespacedName, change lock.Change) {
	for each := range c.receivers[name] {
		if each.isForLatest {
			select {
			case <-each.changes:
			default:
			}
		}
		select {
		case each.changes <- change:
		default:
			c.end(name, each)
		}
	}
}

// add adds a receiver until ctx ends. It needs the mutex.
func (c *lockCache) add(ctx context.Context, name types.NamespacedName, added *receiver) {
	if c.receivers[name] == nil {
		c.receivers[name] = map[*receiver]struct{}{}
	}
	c.receivers[name][added] = struct{}{}
	context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.end(name, added)
	})
}

// end needs the mutex.
func (c *lockCache) end(name types.NamespacedName, ended *receiver) {
	receivers := c.receivers[name]
	if _, ok := receivers[ended]; !ok {
		return
	}
	close(ended.changes)
	if delete(receivers, ended); len(receivers) == 0 {
		delete(c.receivers, name)
	}
}

// watch sends the present state of a lock and each later one. That the lock does not exist it sends
// once the informer has shown all locks.
func (c *lockCache) watch(ctx context.Context, name types.NamespacedName) <-chan lock.Change {
	watching := &receiver{changes: make(chan lock.Change, 1), isForLatest: true}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.receivers == nil {
		close(watching.changes)
		return watching.changes
	}
	if present := c.of(name).shown; present != nil || c.isComplete() {
		watching.changes <- lock.Change{Lock: present, IsGone: present == nil}
	}
	c.add(ctx, name, watching)
	return watching.changes
}

// Stream implements [lock.Streamer] with the engine's informer; it makes no request. A stream begins when
// the informer has shown all locks: Stream waits for that, and after half a minute the error matches
// [lock.ErrUnavailable]. Without an informer that shows all locks it matches [errors.ErrUnsupported].
func (e *Engine) Stream(ctx context.Context, namespace string, key v1alpha1.FullKey) (lock.Stream, error) {
	if !e.hasInformer || e.keyInformer != nil {
		return lock.Stream{}, fmt.Errorf("stream the locks of namespace %s: the engine does not watch all locks: %w", namespace, errors.ErrUnsupported)
	}
	if err := e.awaitAll(ctx); err != nil {
		return lock.Stream{}, fmt.Errorf("stream the locks of namespace %s: %w", namespace, err)
	}
	name := types.NamespacedName{Namespace: namespace}
	if key != "" {
		name.Name = key.ObjectName()
	}
	return e.lockCache.stream(ctx, name)
}

// maxFilling is for how long the informer may take to show all locks.
const maxFilling = 30 * time.Second

// awaitAll waits until the informer has shown all locks. A browser does not repeat a request for a stream that was
// refused.
func (e *Engine) awaitAll(ctx context.Context) error {
	if e.lockCache.isComplete() {
		return nil
	}
	timer := servertime.Timers(e.clock).NewTimer(maxFilling)
	defer timer.Stop()
	select {
	case <-e.lockCache.completed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-e.working.Done():
	case <-timer.C():
	}
	return fmt.Errorf("the engine has just started or stopped, and has not seen all locks: %w", lock.ErrUnavailable)
}

// stream begins a stream of one lock, of a namespace if the name is empty, or of all if both are.
func (c *lockCache) stream(ctx context.Context, name types.NamespacedName) (lock.Stream, error) {
	added := &receiver{changes: make(chan lock.Change, lock.StreamBuffer)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.receivers == nil {
		return lock.Stream{}, fmt.Errorf("stream locks: the engine has stopped: %w", lock.ErrUnavailable)
	}
	c.add(ctx, name, added)
	return lock.Stream{Version: c.latest, Present: c.present(name), Changes: added.changes}, nil
}

// present returns the locks that a stream begins with. It needs the mutex.
func (c *lockCache) present(name types.NamespacedName) (present []*v1alpha1.Lock) {
	if name.Name != "" {
		if shown := c.of(name).shown; shown != nil {
			present = append(present, shown)
		}
		return present
	}
	for namespace, locks := range c.locks {
		if name.Namespace == "" || namespace == name.Namespace {
			present = slices.Grow(present, len(locks))
			for _, of := range locks {
				if of.shown != nil {
					present = append(present, of.shown)
				}
			}
		}
	}
	return present
}

// close ends all watches and streams.
func (c *lockCache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, receivers := range c.receivers {
		for each := range receivers {
			c.end(name, each)
		}
	}
	c.receivers = nil
}
