package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// lockCache holds the locks that an informer has shown. It may be behind etcd, never ahead.
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
	locks map[string]map[string]*v1alpha1.Lock
	// latest is the latest resourceVersion of all that the informer has shown.
	latest string
	// watchers is nil once they are closed.
	watchers map[types.NamespacedName]map[*watcher]struct{}
	// streams are those of one lock, or of a namespace if the name is empty. It is nil once they
	// are closed.
	streams map[types.NamespacedName]map[*stream]struct{}
}

func newLockCache(changed func(types.NamespacedName, lock.Change), forgotten func(types.NamespacedName)) *lockCache {
	return &lockCache{
		changed:   changed,
		forgotten: forgotten,
		completed: make(chan struct{}),
		locks:     map[string]map[string]*v1alpha1.Lock{},
		watchers:  map[types.NamespacedName]map[*watcher]struct{}{},
		streams:   map[types.NamespacedName]map[*stream]struct{}{},
	}
}

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
	for watcher := range c.watchers[name] {
		watcher.send(lock.Change{IsGone: true})
	}
}

// complete records, once, that the informer has shown all locks: what it has not shown does not exist.
func (c *lockCache) complete() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.completed)
	for name, watchers := range c.watchers {
		if c.locks[name.Namespace][name.Name] != nil {
			continue
		}
		for watcher := range watchers {
			watcher.send(lock.Change{IsGone: true})
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
	c.remove(name)
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
	if isGone {
		c.remove(name)
	} else {
		c.put(name, seen)
	}
	if c.latest == "" || rules.IsNewer(seen.ResourceVersion, c.latest) {
		c.latest = seen.ResourceVersion
	}
	for watcher := range c.watchers[name] {
		watcher.send(change)
	}
	c.sendToStreams(name, change)
	c.sendToStreams(types.NamespacedName{Namespace: name.Namespace}, change)
	c.sendToStreams(types.NamespacedName{}, change)
	c.mu.Unlock()
	c.changed(name, change)
}

// put needs the mutex.
func (c *lockCache) put(name types.NamespacedName, seen *v1alpha1.Lock) {
	if c.locks[name.Namespace] == nil {
		c.locks[name.Namespace] = map[string]*v1alpha1.Lock{}
	}
	c.locks[name.Namespace][name.Name] = seen
}

// remove needs the mutex.
func (c *lockCache) remove(name types.NamespacedName) {
	delete(c.locks[name.Namespace], name.Name)
	if len(c.locks[name.Namespace]) == 0 {
		delete(c.locks, name.Namespace)
	}
}

// get returns the lock as last seen, or nil. Callers must not modify it.
func (c *lockCache) get(name types.NamespacedName) *v1alpha1.Lock {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.locks[name.Namespace][name.Name]
}

// hasRoom reports whether a namespace has fewer locks than limit, or has the named one, which then need
// not be created.
func (c *lockCache) hasRoom(name types.NamespacedName, limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	locks := c.locks[name.Namespace]
	return len(locks) < limit || locks[name.Name] != nil
}

// Watch implements [lock.Backend] with the engine's informer; it makes no request. The states come
// from a cache, and the first may be behind what the caller knows already: compare
// resourceVersions. With a [KeyInformer] the first may come a second later, after a request of the
// informer; with any other it may come when the informer has shown all locks. Without an informer the error matches [errors.ErrUnsupported].
func (e *Engine) Watch(ctx context.Context, namespace string, key v1alpha1.FullKey) (<-chan lock.Change, error) {
	if !e.hasInformer {
		return nil, fmt.Errorf("watch %s: the engine has no informer: %w", key, errors.ErrUnsupported)
	}
	name := types.NamespacedName{Namespace: namespace, Name: key.ObjectName()}
	changes := e.lockCache.watch(ctx, name)
	if e.keyInformer != nil {
		// Most holders are done before a watch of their lock would be worth a request.
		context.AfterFunc(ctx, e.keyInformer.Use(name, e.grants.get(name), true))
	}
	return changes, nil
}

// watcher receives the states of one lock. The mutex of lockCache guards sending
// and closing.
type watcher struct {
	// changes holds the latest state, unless it was received.
	changes chan lock.Change
}

// send replaces a state that was not received yet.
func (w *watcher) send(change lock.Change) {
	select {
	case <-w.changes:
	default:
	}
	w.changes <- change
}

// watch sends the present state of a lock and each later one. That the lock does not exist it sends
// once the informer has shown all locks.
func (c *lockCache) watch(ctx context.Context, name types.NamespacedName) <-chan lock.Change {
	watcher := &watcher{changes: make(chan lock.Change, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers == nil {
		close(watcher.changes)
		return watcher.changes
	}
	if present := c.locks[name.Namespace][name.Name]; present != nil || c.isComplete() {
		watcher.send(lock.Change{Lock: present, IsGone: present == nil})
	}
	addTo(c.watchers, name, watcher)
	context.AfterFunc(ctx, func() { c.unwatch(name, watcher) })
	return watcher.changes
}

func addTo[T comparable](receivers map[types.NamespacedName]map[T]struct{}, name types.NamespacedName, added T) {
	if receivers[name] == nil {
		receivers[name] = map[T]struct{}{}
	}
	receivers[name][added] = struct{}{}
}

// removeFrom reports whether the receiver was there.
func removeFrom[T comparable](receivers map[types.NamespacedName]map[T]struct{}, name types.NamespacedName, removed T) bool {
	if _, ok := receivers[name][removed]; !ok {
		return false
	}
	delete(receivers[name], removed)
	if len(receivers[name]) == 0 {
		delete(receivers, name)
	}
	return true
}

func (c *lockCache) unwatch(name types.NamespacedName, watcher *watcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if removeFrom(c.watchers, name, watcher) {
		close(watcher.changes)
	}
}

// stream receives every state of one lock, of all locks of a namespace, or of all. The mutex of lockCache
// guards sending and closing.
type stream struct{ changes chan lock.Change }

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
	added := &stream{changes: make(chan lock.Change, lock.StreamBuffer)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams == nil {
		return lock.Stream{}, fmt.Errorf("stream locks: the engine has stopped: %w", lock.ErrUnavailable)
	}
	locks := c.locks[name.Namespace]
	var present []*v1alpha1.Lock
	switch {
	case name.Namespace == "":
		for _, each := range c.locks {
			present = slices.AppendSeq(present, maps.Values(each))
		}
	case name.Name == "":
		present = slices.AppendSeq(make([]*v1alpha1.Lock, 0, len(locks)), maps.Values(locks))
	case locks[name.Name] != nil:
		present = append(present, locks[name.Name])
	}
	addTo(c.streams, name, added)
	context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.endStream(name, added)
	})
	return lock.Stream{Version: c.latest, Present: present, Changes: added.changes}, nil
}

// sendToStreams needs the mutex. A receiver that is too slow loses its stream, not a change.
func (c *lockCache) sendToStreams(name types.NamespacedName, change lock.Change) {
	for each := range c.streams[name] {
		select {
		case each.changes <- change:
		default:
			c.endStream(name, each)
		}
	}
}

// endStream needs the mutex.
func (c *lockCache) endStream(name types.NamespacedName, ended *stream) {
	if removeFrom(c.streams, name, ended) {
		close(ended.changes)
	}
}

// close ends all watches.
func (c *lockCache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, watchers := range c.watchers {
		for watcher := range watchers {
			close(watcher.changes)
		}
	}
	c.watchers = nil
	for name, streams := range c.streams {
		for each := range streams {
			c.endStream(name, each)
		}
	}
	c.streams = nil
}
