//go:build !linux

package supervise

import "time"

// NewClock returns the clock of this machine. It is the wall clock, which goes on while the machine is
// suspended; the timers are late by up to a second after that.
func NewClock() Clock { return wallClock{} }

type wallClock struct{}

func (wallClock) Now() time.Duration { return time.Duration(time.Now().UnixNano()) } //nolint:forbidigo // the clock itself

// lookAgain bounds how late a timer is after the machine was suspended.
const lookAgain = time.Second

func (c wallClock) NewTimer() Timer {
	t := &wallTimer{clock: c, set: make(chan time.Duration), fired: make(chan struct{}, 1), stop: make(chan struct{}), closed: make(chan struct{})}
	go t.loop()
	return t
}

type wallTimer struct {
	clock        Clock
	set          chan time.Duration
	fired        chan struct{}
	stop, closed chan struct{}
}

func (t *wallTimer) loop() {
	defer close(t.closed)
	timer := time.NewTimer(lookAgain) //nolint:forbidigo // the clock itself
	defer timer.Stop()
	timer.Stop()
	var at time.Duration
	for {
		select {
		case <-t.stop:
			return
		case at = <-t.set:
		case <-timer.C:
		}
		if left := at - t.clock.Now(); left > 0 {
			timer.Reset(min(left, lookAgain))
			continue
		}
		select {
		case t.fired <- struct{}{}:
		default:
		}
	}
}

func (t *wallTimer) Set(at time.Duration) { t.set <- at }

func (t *wallTimer) C() <-chan struct{} { return t.fired }

func (t *wallTimer) Close() {
	close(t.stop)
	<-t.closed
}
