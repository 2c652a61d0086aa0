package engine

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

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
