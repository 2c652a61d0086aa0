package locktest

import (
	"context"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// watcher receives the states of one lock. The mutex of the backend guards sending and
// closing.
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

// Watch implements [lock.Backend]. It shows an expired lock unchanged until that is taken over.
func (b *Backend) Watch(ctx context.Context, namespace string, key v1alpha1.FullKey) (<-chan lock.Change, error) {
	return do(ctx, b, Call{Verb: Watch, Namespace: namespace, Key: key}, func(Hooks) (<-chan lock.Change, error) {
		watching := &watcher{changes: make(chan lock.Change, 1)}
		err := b.withEntry(namespace, key, "watch", func(e *entry, _ time.Time) error {
			watching.send(lock.Change{Lock: e.lock, IsGone: e.lock == nil})
			e.watchers[watching] = struct{}{}
			context.AfterFunc(ctx, func() { b.unwatch(e, watching) })
			return nil
		})
		return watching.changes, err
	})
}

func (b *Backend) unwatch(e *entry, watching *watcher) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(e.watchers, watching)
	close(watching.changes)
	b.deleteIfEmpty(e)
}
