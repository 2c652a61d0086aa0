// Package measure lets contenders take turns, and computes what their rounds say. It tells, too, whether the machine was
// quiet meanwhile.
package measure

import "context"

// Locker is one client of a contender. One goroutine uses it.
type Locker interface {
	// Acquire acquires the lock, and waits for it if the contender can.
	Acquire(ctx context.Context, key string) error
	// Release releases the lock.
	Release(ctx context.Context, key string) error
	// Close frees the client's connection or session.
	Close()
}

// Contender is one of the compared ways to lock.
type Contender struct {
	Name string
	// Resource is the resource of its requests to the API server. Empty means that it sends
	// none.
	Resource string
	// Clients is its number of clients. Zero means that of the comparison.
	Clients int
	// IsAside says that no bound depends on it, so it takes few turns.
	IsAside bool
	// Operator is the process that stands in for the cluster's operator. Zero means that none does.
	Operator int
	// Site is the cluster that it uses, if it is not that of the comparison.
	Site *Site
	// Open returns the client with that number.
	Open func(ctx context.Context, client int) (Locker, error)
	// Stop ends the resources that the clients share. Nil means none.
	Stop func()
}
