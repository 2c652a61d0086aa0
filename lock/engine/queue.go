package engine

import (
	"container/list"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// queues holds one queue of waiters for each lock. All share one mutex, which is never held during
// a request.
type queues struct {
	mu        sync.Mutex
	byName    map[types.NamespacedName]*queue
	isStopped bool
}

func newQueues() *queues { return &queues{byName: map[types.NamespacedName]*queue{}} }

// queue holds the waiters of this engine for one lock, first in, first out. Only the head
// contends, and only one goroutine at a time writes for it: the queue's own, or that of a caller
// that releases the lock.
type queue struct {
	name types.NamespacedName
	// wake makes the queue's goroutine check its state.
	wake chan struct{}

	// The mutex of queues guards the fields below.

	waiters list.List
	// inFlight is the waiter that a goroutine is writing for, or nil.
	inFlight *waiter
	burst    handOffBurst
	seen     lastSeen
	// recheckAt is when the lock is read again unless the informer has shown it.
	recheckAt time.Time
	// isYielding says that this engine is deleting the lock after a burst of hand-offs, and that the
	// informer has not reported the delete yet.
	isYielding bool
	// yieldUntil is when the pause for the waiters of other replicas ends.
	yieldUntil time.Time
	backoff    backoffState
}

// maxBackoff is how long a queue pauses at most before it contends again.
const maxBackoff = 2 * time.Second

// backoffState says why, and until when, the queue does not contend.
type backoffState struct {
	// err is nil if the API server refused a lock that seems to be free.
	err   error
	until time.Time
	steps *wait.Backoff
}

func (b *backoffState) failed(err error, now time.Time) {
	if b.steps == nil {
		b.steps = new(newBackoff())
	}
	b.err, b.until = err, now.Add(min(b.steps.Step(), maxBackoff))
}

// add appends a waiter, and reports whether its queue is new and needs a goroutine. A new queue
// begins with the state that seen returns. add calls seen under the mutex: otherwise a change
// reported in between would find no queue and be lost, and the end of a lock is reported only
// once.
func (q *queues) add(name types.NamespacedName, request lock.Request, seen func(types.NamespacedName) *v1alpha1.Lock) (*queue, *waiter, bool) {
	joined := &waiter{request: request, outcome: make(chan outcome), left: make(chan struct{})}
	q.mu.Lock()
	defer q.mu.Unlock()
	queue, exists := q.byName[name], true
	if queue == nil {
		queue, exists = newQueue(name, seen(name)), false
		q.byName[name] = queue
	}
	joined.element = queue.waiters.PushBack(joined)
	return queue, joined, !exists
}

func newQueue(name types.NamespacedName, seen *v1alpha1.Lock) *queue {
	queue := &queue{name: name, wake: make(chan struct{}, 1)}
	if seen != nil {
		queue.seen.update(lock.Change{Lock: seen}, true)
	}
	return queue
}

// leave takes out a waiter whose caller has left.
func (q *queues) leave(queue *queue, gone *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue.waiters.Remove(gone.element)
	close(gone.left)
	queue.signal()
}

// giveUp takes out a waiter whose wait is over, and returns the reason. It returns nil if a write
// for the waiter is under way or about to be: the waiter then waits for its outcome.
func (q *queues) giveUp(queue *queue, overdue *waiter) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	isNext := queue.waiters.Front() == overdue.element && queue.seen.lock == nil && queue.backoff.err == nil
	if queue.inFlight == overdue || isNext {
		overdue.isOverdue = true
		queue.signal()
		return nil
	}
	queue.waiters.Remove(overdue.element)
	close(overdue.left)
	if queue.waiters.Len() == 0 {
		queue.signal()
	}
	return queue.timeoutError(overdue)
}

// changed records a change that the informer reports.
func (q *queues) changed(name types.NamespacedName, change lock.Change, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue := q.byName[name]
	if queue == nil {
		return
	}
	if queue.seen.update(change, true) {
		queue.backoff = backoffState{}
	}
	if change.IsGone && queue.isYielding {
		queue.isYielding, queue.yieldUntil = false, now.Add(headStart)
	}
	queue.signal()
}

// stop makes all queues dismiss their waiters and end.
func (q *queues) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.isStopped = true
	for _, queue := range q.byName {
		queue.signal()
	}
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// head returns the first waiter, or nil.
func (q *queue) head() *waiter {
	front := q.waiters.Front()
	if front == nil {
		return nil
	}
	return front.Value.(*waiter) //nolint:errcheck,forcetypeassert // the list holds only waiters
}
