package engine

import (
	"context"
	"math"
	"time"

	"forrst.dev/lock-operator/lock/servertime"
)

const (
	// reopenGrace is how long a watch may be closed: the API server ends each after some minutes, and the informer opens
	// the next, which shows what happened in between, at once.
	reopenGrace = 250 * time.Millisecond
	// maxFirstList is for how long the first list of locks may take until it counts as a watch that is closed.
	maxFirstList = time.Minute
)

// WatchState is what an engine knows of the watch that feeds it. Its zero value is an open watch, or one of which nothing
// is known. Whether an open watch shows all changes is not known: the head of each queue reads its lock for that.
type WatchState struct {
	// IsUnanswered says that the API server has not answered a list or a watch since the process began.
	IsUnanswered bool
	// ClosedFor is for how long no watch has been open. It is zero for a quarter of a second between two watches, and
	// during the first list for up to a minute, as long as that goes well.
	ClosedFor time.Duration
}

// WatchState returns the present state of the watch.
func (e *Engine) WatchState() WatchState {
	if e.stream == nil {
		return WatchState{}
	}
	return e.stream.watchState(servertime.Timers(e.clock).Now())
}

func (s *WatchStream) watchState(now time.Time) WatchState {
	isOpen, since := s.state()
	closedFor := now.Sub(since)
	s.mu.Lock()
	defer s.mu.Unlock()
	isFirstList := s.isReached && !s.hasOpened && !s.isReported && closedFor < maxFirstList
	if isOpen || isFirstList || closedFor <= reopenGrace {
		closedFor = 0
	}
	return WatchState{IsUnanswered: !isOpen && !s.isReached, ClosedFor: closedFor}
}

// untilClosed returns how long until the watch counts as closed if no other is opened; zero or less means that it does.
func (s *WatchStream) untilClosed(now time.Time) time.Duration {
	isOpen, since := s.state()
	if isOpen {
		return math.MaxInt64
	}
	return since.Add(reopenGrace).Sub(now)
}

// followWatch tells the queues whenever the watch is closed and open again, until ctx ends.
func (e *Engine) followWatch(ctx context.Context) {
	if e.stream == nil {
		return
	}
	timers, changed, wasClosed := servertime.Timers(e.clock), make(chan struct{}, 1), false
	e.stream.subscribe(changed)
	for {
		left := e.stream.untilClosed(timers.Now())
		if isClosed := left <= 0; isClosed != wasClosed {
			e.queues.setWatch(isClosed, e.clock.Now())
			wasClosed = isClosed
		}
		if left <= 0 {
			left = lookAgainAfter
		}
		timer := timers.NewTimer(min(left, lookAgainAfter))
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// notAfter returns the time or, if the clock was set back since then, the present: what was in the future would count for
// as long as it is.
func notAfter(then, now time.Time) time.Time {
	if then.After(now) {
		return now
	}
	return then
}
