package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// turn is one contender's run for a while with a number of clients.
type turn struct {
	lockers []locker
	// key returns the key of a client.
	key func(client int) string
	// hold is how long a client keeps the lock.
	hold time.Duration
	// length is for how long clients start new cycles.
	length time.Duration
	// over ends the turn earlier.
	over atomic.Bool

	// handover is who released last and when. Only the holder writes it.
	handover atomic.Pointer[handover]
}

// handover is the start of a release.
type handover struct {
	client int
	at     time.Time
}

// measurement is what one or more turns came to.
type measurement struct {
	// cycles were completed within the length of the turn.
	cycles int
	// latencies are of acquire and release together.
	latencies []time.Duration
	// acquires are of the acquire alone.
	acquires []time.Duration
	// handovers are times from the start of a release to when a client knew that it
	// holds the lock that had been waiting for it already.
	handovers []time.Duration
}

func (m *measurement) add(other measurement) {
	m.cycles += other.cycles
	m.latencies = append(m.latencies, other.latencies...)
	m.acquires = append(m.acquires, other.acquires...)
	m.handovers = append(m.handovers, other.handovers...)
}

// run has all clients acquire and release until the turn is over, and then lets each
// finish its cycle.
func (t *turn) run(ctx context.Context) (measurement, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.handover.Store(nil)
	end := time.Now().Add(t.length)
	measured := make([]measurement, len(t.lockers))
	var clients sync.WaitGroup
	for client := range t.lockers {
		clients.Go(func() {
			if err := t.cycle(ctx, client, end, &measured[client]); err != nil {
				cancel(fmt.Errorf("client %d: %w", client, err))
			}
		})
	}
	clients.Wait()
	var total measurement
	for _, each := range measured {
		total.add(each)
	}
	return total, context.Cause(ctx)
}

func (t *turn) cycle(ctx context.Context, client int, end time.Time, measured *measurement) error {
	locker, key := t.lockers[client], t.key(client)
	for {
		start := time.Now()
		if !start.Before(end) || t.over.Load() {
			return nil
		}
		if err := locker.acquire(ctx, key); err != nil {
			return fmt.Errorf("acquire: %w", err)
		}
		acquired := time.Now()
		if from := t.handover.Load(); from != nil && from.client != client && from.at.After(start) {
			measured.handovers = append(measured.handovers, acquired.Sub(from.at))
		}
		if t.hold > 0 {
			if err := waitUntil(ctx, acquired.Add(t.hold)); err != nil {
				return err
			}
		}
		t.handover.Store(&handover{client: client, at: time.Now()})
		if err := locker.release(ctx, key); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		released := time.Now()
		measured.acquires = append(measured.acquires, acquired.Sub(start))
		measured.latencies = append(measured.latencies, released.Sub(start))
		if !released.After(end) {
			measured.cycles++
		}
	}
}
