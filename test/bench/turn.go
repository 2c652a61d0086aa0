package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// client is one client of a contender. One goroutine uses it.
type client struct {
	// acquire acquires the lock, and waits for it if the contender can. release is nil if a cycle is one call.
	acquire, release func(ctx context.Context, key string) error
	// close frees the client's connection or session. Nil if it has none.
	close func()
}

// contender is one of the compared ways to lock.
type contender struct {
	name string
	// resource is the resource of its requests to the API server. Empty if it sends none.
	resource string
	// clients is its number of clients. Zero means that of the comparison.
	clients int
	// operator is the process that stands in for the cluster's operator. Zero if none does.
	operator int
	// at is the cluster that it uses. Nil means that of the scenario.
	at *cluster
	// open returns the client with that number.
	open func(ctx context.Context, number int) client
}

// turn is one run of a contender with its clients.
type turn struct {
	name    string
	clients []client
	// key returns the key of a client.
	key func(client int) string
	// hold is how long a client keeps the lock, length how long clients begin new cycles.
	hold, length time.Duration
	// countsParts says that a cycle that the end of the turn interrupts counts in part. That is right for clients that do not
	// wait for each other: leaving it out would take half a cycle from each client.
	countsParts bool
	// isOver ends the turn earlier.
	isOver atomic.Bool

	// lastRelease is the latest release. Only the holder writes it.
	lastRelease atomic.Pointer[releaseStart]
}

type releaseStart struct {
	client int
	at     time.Time
}

// measurement is what one or more turns measured.
type measurement struct {
	// cycles is the number of cycles within the length of the turn.
	cycles float64
	// latencies are of acquire and release together, acquires of the acquire alone.
	latencies, acquires []time.Duration
	// handOffs are from the start of a release to the return of an acquire that was already waiting.
	handOffs []time.Duration
}

func (m *measurement) add(other measurement) {
	m.cycles += other.cycles
	m.latencies = append(m.latencies, other.latencies...)
	m.acquires = append(m.acquires, other.acquires...)
	m.handOffs = append(m.handOffs, other.handOffs...)
}

// newTurn opens the clients of a contender.
func newTurn(ctx context.Context, of contender, clients int) *turn {
	t := &turn{name: of.name}
	for number := range clients {
		t.clients = append(t.clients, of.open(ctx, number))
	}
	return t
}

// close closes the clients.
func (t *turn) close() {
	for _, client := range t.clients {
		if client.close != nil {
			client.close()
		}
	}
}

// run lets all clients acquire and release until the turn is over, and then finish their cycles.
func (t *turn) run(ctx context.Context) (measurement, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.lastRelease.Store(nil)
	end := time.Now().Add(t.length)
	measured := make([]measurement, len(t.clients))
	var running sync.WaitGroup
	for number := range t.clients {
		running.Go(func() {
			if err := t.cycle(ctx, number, end, &measured[number]); err != nil {
				cancel(fmt.Errorf("%s, client %d: %w", t.name, number, err))
			}
		})
	}
	running.Wait()
	var total measurement
	for _, each := range measured {
		total.add(each)
	}
	return total, context.Cause(ctx)
}

func (t *turn) cycle(ctx context.Context, number int, end time.Time, measured *measurement) error {
	client, key := t.clients[number], t.key(number)
	for {
		start := time.Now()
		if !start.Before(end) || t.isOver.Load() {
			return nil
		}
		if err := client.acquire(ctx, key); err != nil {
			return fmt.Errorf("acquire: %w", err)
		}
		acquired := time.Now()
		if from := t.lastRelease.Load(); from != nil && from.client != number && from.at.After(start) {
			measured.handOffs = append(measured.handOffs, acquired.Sub(from.at))
		}
		if err := waitUntil(ctx, acquired.Add(t.hold)); err != nil {
			return err
		}
		t.lastRelease.Store(&releaseStart{client: number, at: time.Now()})
		if client.release != nil {
			if err := client.release(ctx, key); err != nil {
				return fmt.Errorf("release: %w", err)
			}
		}
		released := time.Now()
		measured.acquires = append(measured.acquires, acquired.Sub(start))
		measured.latencies = append(measured.latencies, released.Sub(start))
		switch {
		case !released.After(end):
			measured.cycles++
		case t.countsParts:
			measured.cycles += float64(end.Sub(start)) / float64(released.Sub(start))
		}
	}
}
