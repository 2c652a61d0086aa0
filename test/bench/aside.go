package main

import (
	"context"
	"fmt"
)

// aside are clients of the façade that run while something else is measured.
type aside struct {
	turn     turn
	finished chan struct{}
	measured measurement
	err      error
}

// startAside connects the clients and runs them until stop.
func (l *lab) startAside(ctx context.Context) (*aside, error) {
	started := &aside{finished: make(chan struct{})}
	started.turn.hold, started.turn.length = bystanderHold, reapTime
	started.turn.key = func(client int) string { return fmt.Sprintf("aside-%d", client) }
	facade := newFacade(l.cluster.facade, 0)
	for client := range bystanders {
		opened, err := facade.open(ctx, client)
		if err != nil {
			for _, each := range started.turn.lockers {
				each.close()
			}
			return nil, err
		}
		started.turn.lockers = append(started.turn.lockers, opened)
	}
	go func() {
		defer close(started.finished)
		started.measured, started.err = started.turn.run(ctx)
	}()
	return started, nil
}

// stop lets every client finish its cycle, disconnects them and returns what they
// measured.
func (a *aside) stop() (measurement, error) {
	a.turn.over.Store(true)
	<-a.finished
	for _, each := range a.turn.lockers {
		each.close()
	}
	return a.measured, a.err
}
