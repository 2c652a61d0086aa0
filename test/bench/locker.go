package main

import "context"

// locker is one client of one of the ways to lock that are compared. One goroutine
// uses it.
type locker interface {
	// acquire takes the lock. It waits where the contender waits.
	acquire(ctx context.Context, key string) error
	// release gives back what acquire took.
	release(ctx context.Context, key string) error
	// close frees the client's connection or session.
	close()
}

// contender is one of the ways to lock that are compared.
type contender struct {
	name string
	// resource is what its requests to the API server are about. Empty means that it
	// makes none.
	resource string
	// clients is how many clients it has, where that differs from the comparison's.
	clients int
	// isAside says that nothing is judged by it, so that it takes few turns.
	isAside bool
	// open returns the client with the number.
	open func(ctx context.Context, client int) (locker, error)
	// stop ends what the clients share. Nil means nothing.
	stop func()
}
