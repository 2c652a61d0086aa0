package lock

import (
	"context"
	"reflect"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// heldLocks lists the locks that a context carries, the latest first.
type heldLocks struct {
	held  *Held
	outer *heldLocks
}

type heldLocksKey struct{}

// withHeldLock returns a context that carries the lock.
func withHeldLock(ctx context.Context, held *Held) context.Context {
	outer, _ := ctx.Value(heldLocksKey{}).(*heldLocks)
	// Locks that have ended are left out; otherwise a chain of contexts would grow a list of them.
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
		if held.key == key && held.client.namespace == c.namespace && held.client.uses(c.backend) && !held.hasEnded() {
			return true
		}
	}
	return false
}

// uses reports whether the client uses this backend: the same key in another cluster is another
// lock.
func (c *Client) uses(backend Backend) bool {
	return reflect.ValueOf(backend).Comparable() && c.backend == backend
}
