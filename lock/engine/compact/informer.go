package compact

import (
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Informer is a shared informer of Locks that keeps them in compact form. Handlers, indexers, and those
// who read its store get and give Locks, which they share and must not modify. Safe for concurrent use.
type Informer struct {
	cache.SharedIndexInformer

	recent recent
}

// NewInformer makes a shared informer of Locks a compact one. It must not have started, and must not be
// used otherwise. Its indexers must come from [Indexers].
func NewInformer(informer cache.SharedIndexInformer) *Informer {
	made := &Informer{SharedIndexInformer: informer}
	_ = made.SetTransform(nil) // It fails for one that has started.
	return made
}

// Handler is an event handler that takes compact locks: see [From].
type Handler interface {
	cache.ResourceEventHandler
	TakesCompactLocks()
}

// SetTransform implements [cache.SharedIndexInformer].
func (i *Informer) SetTransform(transform cache.TransformFunc) error {
	return i.SharedIndexInformer.SetTransform(func(object any) (any, error) {
		if _, isCompact := object.(*Lock); isCompact {
			return object, nil
		}
		if transform != nil {
			var err error
			if object, err = transform(object); err != nil {
				return nil, err
			}
		}
		lock, isLock := object.(*v1alpha1.Lock)
		if !isLock {
			return object, nil
		}
		made := Of(lock)
		i.recent.keep(made, lock)
		return made, nil
	})
}

// AddEventHandler implements [cache.SharedIndexInformer].
func (i *Informer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandler(adapted(handler))
}

// AddEventHandlerWithResyncPeriod implements [cache.SharedIndexInformer].
func (i *Informer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, resync time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(adapted(handler), resync)
}

// AddEventHandlerWithOptions implements [cache.SharedIndexInformer].
func (i *Informer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithOptions(adapted(handler), options)
}

// AddIndexers implements [cache.SharedIndexInformer].
func (i *Informer) AddIndexers(indexers cache.Indexers) error {
	return i.SharedIndexInformer.AddIndexers(Indexers(indexers))
}

// GetStore implements [cache.SharedIndexInformer].
func (i *Informer) GetStore() cache.Store { return i.GetIndexer() }

// GetIndexer implements [cache.SharedIndexInformer].
func (i *Informer) GetIndexer() cache.Indexer { return indexer{i.SharedIndexInformer.GetIndexer()} }

// All returns all locks that the informer shows as they are kept, whether or not it is a compact one. A list
// of its store would be many times as large.
func All(informer cache.SharedIndexInformer) []*Lock {
	if made, isCompact := informer.(*Informer); isCompact {
		informer = made.SharedIndexInformer
	}
	objects := informer.GetIndexer().List()
	locks := make([]*Lock, 0, len(objects))
	for _, object := range objects {
		if lock := From(object); lock != nil {
			locks = append(locks, lock)
		}
	}
	return locks
}

// full returns the Lock in the place of its compact form, and any other object as it is.
func full(object any) any {
	switch object := object.(type) {
	case *Lock:
		return object.Full()
	case cache.DeletedFinalStateUnknown:
		object.Obj = full(object.Obj)
		return object
	}
	return object
}

type fullHandler struct{ cache.ResourceEventHandler }

func adapted(handler cache.ResourceEventHandler) cache.ResourceEventHandler {
	if _, takesCompact := handler.(Handler); takesCompact {
		return handler
	}
	return fullHandler{handler}
}

// OnAdd implements [cache.ResourceEventHandler].
func (h fullHandler) OnAdd(object any, isInInitialList bool) {
	h.ResourceEventHandler.OnAdd(full(object), isInInitialList)
}

// OnUpdate implements [cache.ResourceEventHandler].
func (h fullHandler) OnUpdate(before, object any) {
	h.ResourceEventHandler.OnUpdate(full(before), full(object))
}

// OnDelete implements [cache.ResourceEventHandler].
func (h fullHandler) OnDelete(object any) { h.ResourceEventHandler.OnDelete(full(object)) }

// Indexers returns the indexers for a store of compact locks.
func Indexers(indexers cache.Indexers) cache.Indexers {
	made := cache.Indexers{}
	for name, valuesOf := range indexers {
		made[name] = func(object any) ([]string, error) {
			// Each lock has a namespace, and few have what other indexes are about.
			if lock, isCompact := object.(*Lock); isCompact && name == cache.NamespaceIndex {
				return []string{lock.NamespacedName().Namespace}, nil
			}
			return valuesOf(full(object))
		}
	}
	return made
}

type indexer struct{ cache.Indexer }

// Get implements [cache.Store].
func (i indexer) Get(object any) (any, bool, error) {
	found, exists, err := i.Indexer.Get(object)
	return full(found), exists, err
}

// GetByKey implements [cache.Store].
func (i indexer) GetByKey(key string) (any, bool, error) {
	found, exists, err := i.Indexer.GetByKey(key)
	return full(found), exists, err
}

// List implements [cache.Store].
func (i indexer) List() []any { return allFull(i.Indexer.List()) }

// Index implements [cache.Indexer].
func (i indexer) Index(name string, object any) ([]any, error) {
	found, err := i.Indexer.Index(name, object)
	return allFull(found), err
}

// ByIndex implements [cache.Indexer].
func (i indexer) ByIndex(name, value string) ([]any, error) {
	found, err := i.Indexer.ByIndex(name, value)
	return allFull(found), err
}

// AddIndexers implements [cache.Indexer].
func (i indexer) AddIndexers(indexers cache.Indexers) error {
	return i.Indexer.AddIndexers(Indexers(indexers))
}

func allFull(objects []any) []any {
	for index := range objects {
		objects[index] = full(objects[index])
	}
	return objects
}

// recent keeps the Locks of the latest changes, which the handlers are about to ask for.
type recent struct {
	mu   sync.Mutex
	ring [recentLocks]*Lock
	next int
}

const recentLocks = 512

func (r *recent) keep(lock *Lock, full *v1alpha1.Lock) {
	if lock.text == "" {
		return
	}
	lock.full.Store(full)
	r.mu.Lock()
	defer r.mu.Unlock()
	if oldest := r.ring[r.next]; oldest != nil {
		oldest.full.Store(nil)
	}
	r.ring[r.next] = lock
	r.next = (r.next + 1) % recentLocks
}
