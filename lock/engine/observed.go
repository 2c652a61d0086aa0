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

// observed holds the locks that an informer has shown. It may be behind etcd, never ahead.
type observed struct {
	// changed is called for each change, in order and without the mutex.
	changed func(types.NamespacedName, lock.Change)

	mu    sync.Mutex
	locks map[types.NamespacedName]*v1alpha1.Lock
	// watchers is nil once they are closed.
	watchers map[types.NamespacedName]map[*watcher]struct{}
}

func newObserved(changed func(types.NamespacedName, lock.Change)) *observed {
	return &observed{
		changed:  changed,
		locks:    map[types.NamespacedName]*v1alpha1.Lock{},
		watchers: map[types.NamespacedName]map[*watcher]struct{}{},
	}
}

// OnAdd implements [cache.ResourceEventHandler].
func (o *observed) OnAdd(object any, _ bool) { o.record(object, false) }

// OnUpdate implements [cache.ResourceEventHandler].
func (o *observed) OnUpdate(_, object any) { o.record(object, false) }

// OnDelete implements [cache.ResourceEventHandler].
func (o *observed) OnDelete(object any) {
	if unseen, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unseen.Obj
	}
	o.record(object, true)
}

func (o *observed) record(object any, isGone bool) {
	seen, ok := object.(*v1alpha1.Lock)
	if !ok {
		return
	}
	name := nameOf(seen)
	change := lock.Change{Lock: seen, IsGone: isGone}
	o.mu.Lock()
	if isGone {
		delete(o.locks, name)
	} else {
		o.locks[name] = seen
	}
	for watcher := range o.watchers[name] {
		watcher.send(change)
	}
	o.mu.Unlock()
	o.changed(name, change)
}

// get returns the lock as last seen, or nil. Callers must not modify it.
func (o *observed) get(name types.NamespacedName) *v1alpha1.Lock {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.locks[name]
}
