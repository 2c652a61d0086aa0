// Package lock acquires distributed locks that are Kubernetes objects.
//
// Run a function that must not run twice at a time:
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
// Do waits for the lock, keeps it renewed, ends the context of the function when the lock is or
// may be lost, and releases the lock in every case. [Client.Acquire] and [Client.TryAcquire]
// return the lock as a [Held], for code that is not one function. [Client.DoAll] and [Client.AcquireAll] acquire
// several locks, all or none.
//
// No lock service can guarantee that its client notices in time that a lock has ended: the process
// may be paused at any instruction. Therefore send [Held.FencingToken] along with every write, and
// let the receiver refuse numbers smaller than the largest it has seen. If the receiver is the
// Kubernetes API server, use package lock/objectlock.
//
// A lock passes from one process to another by [Held.Detach] and [Client.Resume]. Package lock/lockhttp
// does so for the requests of an HTTP service.
//
// A [Client] works with any [Backend]: package lock/engine uses the API server with the identity
// of the program, package facade/client uses a façade over HTTP, and package lock/locktest keeps
// locks in memory, for tests. Package lock/rules decides what may happen to a lock.
package lock
