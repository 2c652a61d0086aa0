// Package engine implements [lock.Backend] with requests to the API server. The operator runs it
// for the callers of its façade and for Jobs. Other programs run it with their own identity, see
// [NewDirect].
//
// Each transition is one conditional write: a create under the one name of a full key, or an
// update or delete with the resourceVersion that the decision was made on. Package lock/rules
// decides what may be written. The fencing token of a grant is the resourceVersion of the write
// that made it; [v1alpha1.Lock.FencingToken] reads it.
//
// # Queues
//
// The callers that wait for one lock form a queue, first in, first out (queue.go), and each queue has
// one actor (actor.go). It alone grants the lock to them, and makes one request at a time. It sleeps
// until the lock may be free: until the informer reports a change (lock_cache.go), the lock expires,
// or the next read is due, which is soon while the watch is closed (recheck.go). queue.signal wakes
// the actor; waiter.deliver wakes a waiter with its outcome. docs/design.md, section 9, has a table of
// what the actor does.
//
// # Hand-off
//
// A release asks the actor to hand its grant off (request.go): the first waiter then has the lock by
// the write that ends the grant (handoff.go). If no one waits, or after a series of hand-offs, the
// release deletes the lock, and the waiters pause, which gives those of other engines a chance. A
// grant whose caller has left goes the same way.
//
// # Unanswered writes
//
// A write that fails without an answer may have happened (unanswered.go). The engine reads the
// lock until it knows, or ctx ends. A grant that may still happen after its caller learnt that it
// holds nothing is an orphan (orphans.go). The engine looks for an orphan and ends it, until the
// API server can no longer be working on the write, or the ttl is over.
package engine
