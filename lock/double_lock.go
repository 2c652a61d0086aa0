package lock

import (
	"context"
	"reflect"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// heldLocks is the list of locks that a context carries, the latest first.
type heldLocks struct {
	held  *Held
	outer *heldLocks
}

type heldLocksKey struct{}

// carrying returns a context that knows of the lock.
func carrying(ctx context.Context, held *Held) context.Context {
	outer, _ := ctx.Value(heldLocksKey{}).(*heldLocks)
	// What has ended is left out, so that a chain of contexts does not grow a list of them.
	for outer != nil && outer.held.hasEnded() {
		outer = outer.outer
	}
	return context.WithValue(ctx, heldLocksKey{}, &heldLocks{held: held, outer: outer})
}

// isHeldBy reports whether the context carries this lock and it has not ended.
func (c *Client) isHeldBy(ctx context.Context, key v1alpha1.FullKey) bool {
	locks, _ := ctx.Value(heldLocksKey{}).(*heldLocks)
	for ; locks != nil; locks = locks.outer {
		held := locks.held
		if held.key == key && held.client.namespace == c.namespace && held.client.asks(c.backend) && !held.hasEnded() {
			return true
		}
	}
	return false
}

// asks reports whether the client asks this backend: the same key in another cluster
// is another lock.
func (c *Client) asks(backend Backend) bool {
	return reflect.ValueOf(backend).Comparable() && c.backend == backend
}
