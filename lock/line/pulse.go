package line

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

const (
	// pingPeriod is how often each replica asks each other one whether it is there.
	pingPeriod = 300 * time.Millisecond
	// maxSilence is after how long without a message a stream counts as broken. It is found out within one more period,
	// so that callers are in line again within two seconds.
	maxSilence = 5 * pingPeriod
)

// errSilent means that the other replica has sent nothing for too long.
var errSilent = errors.New("the other replica has gone silent")

// pulse tells whether the other end of a stream is alive.
type pulse struct {
	timers clock.WithTicker
	// beats counts the messages.
	beats atomic.Uint64
}

func newPulse(timers clock.WithTicker) *pulse { return &pulse{timers: timers} }

func (p *pulse) beat() { p.beats.Add(1) }

// watch returns when the stream has ended, is silent for too long, or ctx ends. A time in which this process did not
// run is no silence of the other end: what it has sent is not read yet.
func (p *pulse) watch(ctx context.Context, ended <-chan error) error {
	ticker := p.timers.NewTicker(pingPeriod)
	defer ticker.Stop()
	beats, last, silence := p.beats.Load(), p.timers.Now(), time.Duration(0)
	for {
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case now := <-ticker.C():
			silence += min(now.Sub(last), pingPeriod)
			last = now
			if heard := p.beats.Load(); heard != beats {
				beats, silence = heard, 0
			}
			if silence >= maxSilence {
				return errSilent
			}
		}
	}
}
