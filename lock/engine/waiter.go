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
	// outcome is received by the caller. It is unbuffered, so that a grant is either
	// taken by the caller or known not to have been.
	outcome chan outcome
	// left is closed when the caller has gone.
	left chan struct{}
	// isOverdue says that the wait is over and only the present try is awaited.
	isOverdue bool
}

type outcome struct {
	lock *v1alpha1.Lock
	err  error
}

// deliver hands the outcome to the caller and reports whether it was still there.
func (w *waiter) deliver(result outcome) bool {
	select {
	case w.outcome <- result:
		return true
	case <-w.left:
		return false
	}
}
