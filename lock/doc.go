// Package lock takes distributed locks that are Kubernetes objects.
//
// Run what must not run twice at a time:
//
//	backend, err := engine.NewDirect(config, "payments", logger)
//	…
//	go backend.Start(ctx)
//	locks := lock.NewClient(backend, "payments")
//
//	err = locks.Do(ctx, "billing:report", func(ctx context.Context, held *lock.Held) error {
//		return writeReport(ctx, held.FencingToken())
//	})
//
// Do waits for the lock, keeps it renewed, ends the context of the function when the
// lock is or may be lost, and releases it whatever happens. [Client.Acquire] and
// [Client.TryAcquire] return the lock as a [Held], for code that is not one function.
//
// No lock service can guarantee that its client notices in time that a lock has ended:
// the process may be paused at any instruction. So send [Held.FencingToken] along with
// what you write, and have the receiver refuse numbers that are smaller than the
// largest it has seen. Where the receiver is the Kubernetes API server, package
// lock/objectlock does the like.
//
// A [Client] works with any [Backend]: package lock/engine asks the API server with the
// identity of the program, package facade/client asks a façade over HTTP, and package
// lock/locktest keeps locks in memory, for tests. What may happen to a lock is decided in
// package lock/rules.
package lock
