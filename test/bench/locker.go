package main

import "context"

// locker is one client of a contender. One goroutine uses it.
type locker interface {
	// acquire acquires the lock, and waits for it if the contender can.
	acquire(ctx context.Context, key string) error
	// release releases the lock.
	release(ctx context.Context, key string) error
	// close frees the client's connection or session.
	close()
}

// contender is one of the compared ways to lock.
type contender struct {
	name string
	// resource is the resource of its requests to the API server. Empty means that it sends
	// none.
	resource string
	// clients is its number of clients. Zero means that of the comparison.
	clients int
	// isAside says that no bound depends on it, so it takes few turns.
	isAside bool
	// operator is the process that stands in for the cluster's operator. Zero means that none does.
	operator int
	// open returns the client with that number.
	open func(ctx context.Context, client int) (locker, error)
	// stop ends the resources that the clients share. Nil means none.
	stop func()
}
