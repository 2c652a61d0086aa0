package engine

import (
	"container/list"
	"context"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/observe"
	"forrst.dev/lock-operator/lock/rules"
)

// Tracer follows waiting callers in distributed traces. It is safe for concurrent use, and must not block.
type Tracer interface {
	// BeginWait begins the span of a caller that waits for a lock, within the trace of ctx. It returns the
	// context of the span.
	BeginWait(ctx context.Context, namespace string, key v1alpha1.FullKey) (wait context.Context)
	// Within returns ctx for a request that is made on behalf of the waiting caller.
	Within(ctx, wait context.Context) context.Context
	// EndedBy says that a release, which has the context release, has ended the lock for which the caller
	// has waited. It is called before EndWait, or not at all: most often if the release was made elsewhere.
	EndedBy(wait, release context.Context)
	// EndWait ends the span. The error is nil if the caller is granted the lock.
	EndWait(wait context.Context, err error)
}

// noTracer follows nothing.
type noTracer struct{}

// BeginWait implements [Tracer].
func (noTracer) BeginWait(ctx context.Context, _ string, _ v1alpha1.FullKey) context.Context {
	return ctx
}

// Within implements [Tracer].
func (noTracer) Within(ctx, _ context.Context) context.Context { return ctx }

// EndedBy implements [Tracer].
func (noTracer) EndedBy(_, _ context.Context) {}

// EndWait implements [Tracer].
func (noTracer) EndWait(context.Context, error) {}

// waiter is a caller that waits for a lock.
type waiter struct {
	// span is the context of the caller's wait, for [Tracer] alone.
	span    context.Context //nolint:containedctx // other goroutines make its requests
	request lock.Request
	element *list.Element
	// since is when the caller came.
	since time.Time
	// hasWaited says that another caller had the lock, or waited for it.
	hasWaited bool
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

// Waits returns what the engine knows of the callers that wait now. It takes time in proportion to the
// locks that are waited for.
func (e *Engine) Waits() observe.Waits {
	waits := e.queues.waits(e.clock.Now(), e.graceNow())
	waits.LookedFor = e.orphans.lookedFor()
	return waits
}

func (q *queues) waits(now time.Time, grace time.Duration) observe.Waits {
	q.mu.Lock()
	defer q.mu.Unlock()
	waits := observe.Waits{Namespaces: map[string]observe.NamespaceWaits{}}
	for name, queue := range q.byName {
		head := queue.head()
		if head == nil {
			continue
		}
		of := waits.Namespaces[name.Namespace]
		of.Callers += queue.waiters.Len()
		of.Longest = max(of.Longest, now.Sub(head.since)) // The others have come later, unless grants to them lapsed.
		waits.Namespaces[name.Namespace] = of
		if free, isFree := queue.freeSince(now, grace); isFree {
			waits.FreeFor = max(waits.FreeFor, min(now.Sub(free), now.Sub(head.since)))
		}
	}
	return waits
}

// freeSince returns since when the lock has been free as far as the engine knows, and false if it is not.
func (q *queue) freeSince(now time.Time, grace time.Duration) (time.Time, bool) {
	if q.seen.lock == nil {
		return q.freedAt, true
	}
	if left := rules.UntilReclaimable(q.seen.lock, now, grace); left <= 0 {
		return now.Add(left), true
	}
	return time.Time{}, false
}

// WaitedFor calls each with every lock that callers of this engine wait for and another holder has, as far as
// the engine knows, and how many wait. The locks must not be modified.
func (e *Engine) WaitedFor(each func(held *v1alpha1.Lock, callers int)) {
	type waitedFor struct {
		lock    *v1alpha1.Lock
		callers int
	}
	e.queues.mu.Lock()
	var all []waitedFor
	for _, queue := range e.queues.byName {
		if queue.seen.lock != nil && queue.head() != nil {
			all = append(all, waitedFor{queue.seen.lock, queue.waiters.Len()})
		}
	}
	e.queues.mu.Unlock()
	for _, of := range all {
		each(of.lock, of.callers)
	}
}
