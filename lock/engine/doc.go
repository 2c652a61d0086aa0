// Package engine has the [lock.Backend] that asks the API server. The operator runs it for
// the callers of its façade and for Jobs, and programs run it with an identity of their own,
// see [NewDirect].
//
// Each transition is one conditional write: a create under the one name that a full key
// has, or an update or delete that carries the resourceVersion it was decided on. What may
// be written is decided in package lock/rules. The fencing token of a grant is the
// resourceVersion of the write that made it; [v1alpha1.Lock.FencingToken] reads it.
//
// # Queues
//
// The callers that wait for one lock form a queue, first in, first out (queue.go). One
// goroutine for each queue contends for its head (wait.go): it sleeps until the lock may be
// free, which the informer tells (observed.go), the expiry, or, for a lock that the informer
// has not shown yet, a read. A waiter is woken by its outcome, see waiter.deliver; the
// goroutine by queue.signal.
//
// # Hand-off
//
// A release hands the lock off to the first waiter of this engine in the same write
// (handoff.go), unless the waiters of other replicas are to have a chance: then it deletes
// the lock and stands back for a moment. A grant whose caller has left goes to the next
// waiter.
//
// # Unanswered writes
//
// A write that fails without an answer may have happened (unanswered.go). The engine reads
// the lock until it knows, or ctx ends. A grant that may still come in after its caller was
// told that it holds nothing is an orphan (orphans.go): it is looked for, and ended, until
// the API server cannot be working on it any more, or its ttl is over.
package engine
