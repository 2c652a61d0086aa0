package scenario

import (
	"context"
	"fmt"
	"time"

	"forrst.dev/lock-operator/test/bench/contender"
	"forrst.dev/lock-operator/test/bench/lab"
	"forrst.dev/lock-operator/test/bench/measure"
)

// asideTime is longer than any measurement beside which clients run.
const asideTime = time.Hour

// aside are clients of the façade that run while something else is measured.
type aside struct {
	turn     measure.Turn
	finished chan struct{}
	measured measure.Measurement
	err      error
}

// startAside connects the clients and runs them until stop.
func startAside(ctx context.Context, l *lab.Lab) (*aside, error) {
	started := &aside{finished: make(chan struct{})}
	started.turn.Hold, started.turn.Length = bystanderHold, asideTime
	started.turn.Key = func(client int) string { return fmt.Sprintf("aside-%d", client) }
	facade := contender.NewFacade(l.Cluster.Facade, 0)
	for client := range bystanders {
		opened, err := facade.Open(ctx, client)
		if err != nil {
			for _, each := range started.turn.Lockers {
				each.Close()
			}
			return nil, err
		}
		started.turn.Lockers = append(started.turn.Lockers, opened)
	}
	go func() {
		defer close(started.finished)
		started.measured, started.err = started.turn.Run(ctx)
	}()
	return started, nil
}

// stop lets every client finish its cycle, disconnects them and returns what they
// measured.
func (a *aside) stop() (measure.Measurement, error) {
	a.turn.Over.Store(true)
	<-a.finished
	for _, each := range a.turn.Lockers {
		each.Close()
	}
	return a.measured, a.err
}
