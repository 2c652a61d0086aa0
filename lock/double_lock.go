package lock

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
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

// checkContext returns an error if the context carries a lock beside which this one must not be acquired. That it carries this
// one goes first: no other order would help.
func (c *Client) checkContext(ctx context.Context, settings settings) error {
	key := settings.request.FullKey()
	var outOfOrder error
	locks, _ := ctx.Value(heldLocksKey{}).(*heldLocks)
	for ; locks != nil; locks = locks.outer {
		held := locks.held
		if !held.client.uses(c.backend) || held.hasEnded() {
			continue
		}
		order := cmp.Or(cmp.Compare(c.namespace, held.client.namespace), cmp.Compare(key, held.key))
		switch {
		case order == 0:
			return fmt.Errorf("%w: %s in namespace %s is held in this context already", ErrDoubleLock, key, c.namespace)
		case order < 0 && settings.isOrderChecked && settings.request.Wait > 0:
			outOfOrder = fmt.Errorf("%w: %s in namespace %s comes before %s in namespace %s, which this context holds: acquire them in this order, or together by AcquireAll", ErrLockOrder, key, c.namespace, held.key, held.client.namespace)
		}
	}
	return outOfOrder
}

// uses reports whether the client uses this backend: the same key in another cluster is another
// lock.
func (c *Client) uses(backend Backend) bool {
	return reflect.ValueOf(backend).Comparable() && c.backend == backend
}
