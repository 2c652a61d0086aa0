package usage

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// Bound bounds how many objects a namespace may have. It counts them as an event handler of an informer
// that shows all of them, so it is soft: it may be behind etcd, and exceeded by the creates under way. A
// nil Bound bounds nothing. Safe for concurrent use.
type Bound struct {
	max int

	mu    sync.Mutex
	count map[string]int
}

var _ cache.ResourceEventHandler = (*Bound)(nil)

// NewBound returns a bound of so many objects in each namespace. Zero means that there is no bound.
func NewBound(most int) *Bound { return &Bound{max: most, count: map[string]int{}} }

// Max returns how many objects a namespace may have. Zero means any number.
func (b *Bound) Max() int { return b.max }

// IsFull reports whether the namespace has as many objects as it may have.
func (b *Bound) IsFull(namespace string) bool {
	if b == nil || b.max <= 0 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count[namespace] >= b.max
}

// Fullest returns how many objects the namespace with the most has, as a part of the bound: 1 if it is full,
// and 0 if there is no bound.
func (b *Bound) Fullest() float64 {
	if b.max <= 0 {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	most := 0
	for _, count := range b.count {
		most = max(most, count)
	}
	return float64(most) / float64(b.max)
}

// OnAdd implements [cache.ResourceEventHandler].
func (b *Bound) OnAdd(object any, _ bool) { b.add(object, 1) }

// OnUpdate implements [cache.ResourceEventHandler].
func (b *Bound) OnUpdate(any, any) {}

// OnDelete implements [cache.ResourceEventHandler].
func (b *Bound) OnDelete(object any) { b.add(object, -1) }

func (b *Bound) add(object any, change int) {
	// The state in which an object was last seen may be unknown, its name is not.
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	namespace, _, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count[namespace] += change
	if b.count[namespace] <= 0 {
		delete(b.count, namespace)
	}
}
