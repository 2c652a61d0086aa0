package measure

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Turn is one run of a contender with a number of clients.
type Turn struct {
	Lockers []Locker
	// Key returns the key of a client.
	Key func(client int) string
	// Hold is how long a client keeps the lock.
	Hold time.Duration
	// Length is how long clients start new cycles.
	Length time.Duration
	// CountsParts says that the cycles that the end of the turn interrupts count in part, which is right for clients
	// that do not wait for each other: leaving them out would take half a cycle from each client.
	CountsParts bool
	// Over ends the turn earlier.
	Over atomic.Bool

	// lastRelease is the latest release. Only the holder writes it.
	lastRelease atomic.Pointer[releaseStart]
}

// releaseStart is the start of a release.
type releaseStart struct {
	client int
	at     time.Time
}

// Measurement is the measurement of one or more turns.
type Measurement struct {
	// Cycles is the number of cycles within the length of the turn.
	Cycles float64
	// Latencies are of acquire and release together.
	Latencies []time.Duration
	// Acquires are of the acquire alone.
	Acquires []time.Duration
	// HandOffs are times from the start of a release to the return of an acquire that was
	// already waiting.
	HandOffs []time.Duration
}

func (m *Measurement) add(other Measurement) {
	m.Cycles += other.Cycles
	m.Latencies = append(m.Latencies, other.Latencies...)
	m.Acquires = append(m.Acquires, other.Acquires...)
	m.HandOffs = append(m.HandOffs, other.HandOffs...)
}

// Run lets all clients acquire and release until the turn is over, and then finish their
// cycles.
func (t *Turn) Run(ctx context.Context) (Measurement, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.lastRelease.Store(nil)
	end := time.Now().Add(t.Length)
	measured := make([]Measurement, len(t.Lockers))
	var clients sync.WaitGroup
	for client := range t.Lockers {
		clients.Go(func() {
			if err := t.cycle(ctx, client, end, &measured[client]); err != nil {
				cancel(fmt.Errorf("client %d: %w", client, err))
			}
		})
	}
	clients.Wait()
	var total Measurement
	for _, each := range measured {
		total.add(each)
	}
	return total, context.Cause(ctx)
}

func (t *Turn) cycle(ctx context.Context, client int, end time.Time, measured *Measurement) error {
	locker, key := t.Lockers[client], t.Key(client)
	for {
		start := time.Now()
		if !start.Before(end) || t.Over.Load() {
			return nil
		}
		if err := locker.Acquire(ctx, key); err != nil {
			return fmt.Errorf("acquire: %w", err)
		}
		acquired := time.Now()
		if from := t.lastRelease.Load(); from != nil && from.client != client && from.at.After(start) {
			measured.HandOffs = append(measured.HandOffs, acquired.Sub(from.at))
		}
		if t.Hold > 0 {
			if err := WaitUntil(ctx, acquired.Add(t.Hold)); err != nil {
				return err
			}
		}
		t.lastRelease.Store(&releaseStart{client: client, at: time.Now()})
		if err := locker.Release(ctx, key); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		released := time.Now()
		measured.Acquires = append(measured.Acquires, acquired.Sub(start))
		measured.Latencies = append(measured.Latencies, released.Sub(start))
		switch {
		case !released.After(end):
			measured.Cycles++
		case t.CountsParts:
			measured.Cycles += float64(end.Sub(start)) / float64(released.Sub(start))
		}
	}
}
