package engine

import (
	"container/list"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// waiter is a caller that waits for a lock.
type waiter struct {
	request lock.Request
	element *list.Element
	// The caller receives from outcome. The channel is unbuffered: a grant that the caller did not
	// take is known.
	outcome chan outcome
	// left is closed when the caller has left.
	left chan struct{}
	// isOverdue says that the wait is over and only the present try is awaited.
	isOverdue bool
	// lapses spaces the grants to this waiter after one that expired before its delivery.
	lapses backoffState
	// lapsed counts them.
	lapsed int
}

type outcome struct {
	lock *v1alpha1.Lock
	err  error
}

// deliver gives the outcome to the caller. It returns false if the caller has left.
func (w *waiter) deliver(result outcome) bool {
	select {
	case w.outcome <- result:
		return true
	case <-w.left:
		return false
	}
}
