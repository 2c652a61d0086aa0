package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// Informer reports changes to Locks. Shared informers of client-go and of controller-runtime's
// cache implement it.
type Informer interface {
	AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
}

// lockCache holds the locks that an informer has shown. It may be behind etcd, never ahead.
type lockCache struct {
	// changed is called for each change, in order and without the mutex.
	changed func(types.NamespacedName, lock.Change)

	mu    sync.Mutex
	locks map[types.NamespacedName]*v1alpha1.Lock
	// watchers is nil once they are closed.
	watchers map[types.NamespacedName]map[*watcher]struct{}
}

func newLockCache(changed func(types.NamespacedName, lock.Change)) *lockCache {
	return &lockCache{
		changed:  changed,
		locks:    map[types.NamespacedName]*v1alpha1.Lock{},
		watchers: map[types.NamespacedName]map[*watcher]struct{}{},
	}
}

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

func (c *lockCache) record(object any, isGone bool) {
	seen, ok := object.(*v1alpha1.Lock)
	if !ok {
		return
	}
	name := nameOf(seen)
	change := lock.Change{Lock: seen, IsGone: isGone}
	c.mu.Lock()
	if isGone {
		delete(c.locks, name)
	} else {
		c.locks[name] = seen
	}
	for watcher := range c.watchers[name] {
		watcher.send(change)
	}
	c.mu.Unlock()
	c.changed(name, change)
}

// get returns the lock as last seen, or nil. Callers must not modify it.
func (c *lockCache) get(name types.NamespacedName) *v1alpha1.Lock {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.locks[name]
}

// Watch implements [lock.Backend] with the engine's informer; it makes no request. The states come
// from a cache, and the first may be behind what the caller knows already: compare
// resourceVersions. Without an informer the error matches [errors.ErrUnsupported].
func (e *Engine) Watch(ctx context.Context, namespace string, key v1alpha1.FullKey) (<-chan lock.Change, error) {
	if !e.hasInformer {
		return nil, fmt.Errorf("watch %s: the engine has no informer: %w", key, errors.ErrUnsupported)
	}
	return e.lockCache.watch(ctx, types.NamespacedName{Namespace: namespace, Name: key.ObjectName()}), nil
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

// watch sends the present state of a lock and each later one.
func (c *lockCache) watch(ctx context.Context, name types.NamespacedName) <-chan lock.Change {
	watcher := &watcher{changes: make(chan lock.Change, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers == nil {
		close(watcher.changes)
		return watcher.changes
	}
	present := c.locks[name]
	watcher.send(lock.Change{Lock: present, IsGone: present == nil})
	addTo(c.watchers, name, watcher)
	context.AfterFunc(ctx, func() { c.unwatch(name, watcher) })
	return watcher.changes
}

func addTo(watchers map[types.NamespacedName]map[*watcher]struct{}, name types.NamespacedName, added *watcher) {
	if watchers[name] == nil {
		watchers[name] = map[*watcher]struct{}{}
	}
	watchers[name][added] = struct{}{}
}

func (c *lockCache) unwatch(name types.NamespacedName, watcher *watcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.watchers[name][watcher]; !ok {
		return
	}
	close(watcher.changes)
	delete(c.watchers[name], watcher)
	if len(c.watchers[name]) == 0 {
		delete(c.watchers, name)
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
}
