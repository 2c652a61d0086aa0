package engine

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// Informer tells of changes to Locks. Shared informers of client-go and those of
// controller-runtime's cache are Informers.
type Informer interface {
	AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
}

// observed is what an informer has told. It may be behind etcd, never ahead.
type observed struct {
	// changed is called for each change, outside of the mutex and in order.
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
func (o *observed) OnAdd(object any, _ bool) { o.note(object, false) }

// OnUpdate implements [cache.ResourceEventHandler].
func (o *observed) OnUpdate(_, object any) { o.note(object, false) }

// OnDelete implements [cache.ResourceEventHandler].
func (o *observed) OnDelete(object any) {
	if unseen, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unseen.Obj
	}
	o.note(object, true)
}

func (o *observed) note(object any, isGone bool) {
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

// get returns the lock as last seen, or nil. It must not be modified.
func (o *observed) get(name types.NamespacedName) *v1alpha1.Lock {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.locks[name]
}
