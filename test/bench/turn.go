package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// turn is one run of a contender with a number of clients.
type turn struct {
	lockers []locker
	// key returns the key of a client.
	key func(client int) string
	// hold is how long a client keeps the lock.
	hold time.Duration
	// length is how long clients start new cycles.
	length time.Duration
	// over ends the turn earlier.
	over atomic.Bool

	// lastRelease is the latest release. Only the holder writes it.
	lastRelease atomic.Pointer[releaseStart]
}

// releaseStart is the start of a release.
type releaseStart struct {
	client int
	at     time.Time
}

// measurement is the measurement of one or more turns.
type measurement struct {
	// cycles is the number of cycles completed within the length of the turn.
	cycles int
	// latencies are of acquire and release together.
	latencies []time.Duration
	// acquires are of the acquire alone.
	acquires []time.Duration
	// handOffs are times from the start of a release to the return of an acquire that was
	// already waiting.
	handOffs []time.Duration
}

func (m *measurement) add(other measurement) {
	m.cycles += other.cycles
	m.latencies = append(m.latencies, other.latencies...)
	m.acquires = append(m.acquires, other.acquires...)
	m.handOffs = append(m.handOffs, other.handOffs...)
}

// run lets all clients acquire and release until the turn is over, and then finish their
// cycles.
func (t *turn) run(ctx context.Context) (measurement, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.lastRelease.Store(nil)
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
		if from := t.lastRelease.Load(); from != nil && from.client != client && from.at.After(start) {
			measured.handOffs = append(measured.handOffs, acquired.Sub(from.at))
		}
		if t.hold > 0 {
			if err := waitUntil(ctx, acquired.Add(t.hold)); err != nil {
				return err
			}
		}
		t.lastRelease.Store(&releaseStart{client: client, at: time.Now()})
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
