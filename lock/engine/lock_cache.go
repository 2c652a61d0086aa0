package engine

import (
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
