package engine

import (
	"context"
	"math"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/servertime"
)

// HeartbeatKey is the key of the lock whose renewals prove that a watch of locks is alive: the
// operator renews it each [HeartbeatPeriod], and every informer of locks shows that.
const HeartbeatKey = "lock-operator:heartbeat"

var heartbeatName = v1alpha1.NewFullKey(v1alpha1.ScopeGlobal, "", HeartbeatKey).ObjectName()

// HeartbeatPeriod is how often [HeartbeatKey] is renewed. Of the two seconds within which a waiter is
// served after a release that the watch does not show, it leaves 0.9 s for the read and the write of a
// busy API server.
const HeartbeatPeriod = 750 * time.Millisecond

// DefaultMaxWatchSilence is a second: [HeartbeatKey] is renewed each [HeartbeatPeriod], however long
// that takes, and a renewal may take a quarter of a second longer than the last.
const DefaultMaxWatchSilence = HeartbeatPeriod + 250*time.Millisecond

const (
	// reopenGrace is how long a watch may be closed: the API server ends each after some minutes,
	// and the informer opens the next, which shows what happened in between, at once.
	reopenGrace = 250 * time.Millisecond
	// reopenAfter is how long a watch may be silent before it is opened anew.
	reopenAfter = 5 * time.Second
)

// evidence is what an engine knows of the watch that feeds it. Its times are of a clock that is
// not corrected.
type evidence struct {
	// isOpen says that the watch is open, and since is when it was opened or closed last.
	isOpen bool
	since  time.Time
	// isPaced says that the silence of the watch means something: it has shown the heartbeat.
	isPaced bool
	// heard is up to when the informer has shown what happened.
	heard time.Time
	// behindSince is since when the watch has not been trusted; zero while it is.
	behindSince time.Time
}

// trustedFor returns for how long the watch may be trusted from now on if it shows nothing; zero
// or less means that it may not be.
func (e evidence) trustedFor(now time.Time, maxSilence time.Duration) time.Duration {
	left := time.Duration(math.MaxInt64)
	if !e.isOpen {
		left = e.since.Add(reopenGrace).Sub(now)
	}
	if e.isPaced {
		left = min(left, e.heard.Add(maxSilence).Sub(now))
	}
	return left
}

// untilReopen returns how long to wait before the watch is opened anew, and the age that it must
// have by then. The pauses double: what no new watch has mended may last.
func (e evidence) untilReopen(now time.Time) (pause, age time.Duration) {
	silence := now.Sub(e.heard)
	if !e.behindSince.IsZero() {
		silence = max(silence, now.Sub(e.behindSince))
	}
	age = max(reopenAfter, silence/2)
	return max(reopenAfter-silence, age-now.Sub(e.since)), age
}

// trust decides whether the watch that feeds an engine is to be trusted.
type trust struct {
	stream *WatchStream
	// maxSilence is zero if silence proves nothing.
	maxSilence time.Duration
	clock      clock.WithTicker
	// wake makes run look again.
	wake chan struct{}

	mu      sync.Mutex
	isPaced bool
	heard   time.Time
	// isBehind says that the watch is not trusted, and behindSince since when.
	isBehind    bool
	behindSince time.Time
}

func newTrust(stream *WatchStream, maxSilence time.Duration, clock clock.WithTicker) *trust {
	t := &trust{stream: stream, maxSilence: maxSilence, clock: clock, wake: make(chan struct{}, 1)}
	if stream != nil {
		stream.subscribe(t.wake)
	}
	return t
}

// hear records that the informer has shown a change that was made age ago at least. Once the watch
// is paced, a change of unknown age proves nothing.
func (t *trust) hear(isHeartbeat bool, age time.Duration) {
	if t.maxSilence == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	if heard := now.Add(-age); heard.After(t.heard) || t.heard.After(now) {
		t.heard = heard
	}
	isFirst := isHeartbeat && !t.isPaced
	t.isPaced = t.isPaced || isHeartbeat
	if t.isBehind || isFirst {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// hasLost reports whether the heartbeat shows that the watch of this or of another replica has lost a
// change. The informer must have shown all that came before the heartbeat.
func (t *trust) hasLost(heartbeat lock.Change) bool {
	return t.stream != nil && !heartbeat.IsGone && t.stream.hasLost(heartbeat.Lock)
}

// unknownAge is that of a change which does not tell when it was made.
const unknownAge = math.MaxInt64

// ageOf returns how long ago at least a change was made. Only a grant or a renewal tells: its
// renewTime is of about the time of its write. What the clocks may be wrong by counts for the
// watch. If this engine's is not fresh, every change that is stamped counts as new.
func (e *Engine) ageOf(change lock.Change) time.Duration {
	switch {
	case change.IsGone || change.Lock.Spec.RenewTime == nil:
		return unknownAge
	case !servertime.IsFresh(e.clock):
		return 0
	}
	return max(0, e.clock.Now().Sub(change.Lock.Spec.RenewTime.Time)-e.graceNow())
}

// notAfter returns the time or, if the clock was set back since then, the present: what was in the
// future would count for as long as it is.
func notAfter(then, now time.Time) time.Time {
	if then.After(now) {
		return now
	}
	return then
}

func (t *trust) evidence() evidence {
	isOpen, since := t.stream.state()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heard = notAfter(t.heard, t.clock.Now())
	known := evidence{isOpen: isOpen, since: since, isPaced: t.isPaced, heard: t.heard}
	if t.isBehind {
		known.behindSince = t.behindSince
	}
	return known
}

// run calls changed whenever the watch begins or ceases to be trusted, or to be paced, until ctx
// ends. It opens a silent watch anew.
func (t *trust) run(ctx context.Context, changed func(isTrusted, isPaced bool)) {
	if t.stream == nil {
		return
	}
	wasTrusted, wasPaced := true, false
	for {
		known, now := t.evidence(), t.clock.Now()
		left := known.trustedFor(now, t.maxSilence)
		isTrusted := left > 0
		if isTrusted != wasTrusted || known.isPaced != wasPaced {
			t.record(!isTrusted, now)
			changed(isTrusted, known.isPaced)
			wasTrusted, wasPaced = isTrusted, known.isPaced
		}
		pause := left
		if !isTrusted {
			pause = lookAgainAfter
			if known.isOpen && known.isPaced {
				var age time.Duration
				if pause, age = known.untilReopen(now); pause <= 0 {
					t.stream.reopen(age)
					pause = reopenGrace
				}
			}
		}
		if !t.sleep(ctx, pause) {
			return
		}
	}
}

// sleep returns false if ctx ends.
func (t *trust) sleep(ctx context.Context, pause time.Duration) bool {
	timer := t.clock.NewTimer(min(pause, lookAgainAfter))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.wake:
	case <-timer.C():
	}
	return true
}

func (t *trust) record(isBehind bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if isBehind != t.isBehind {
		t.isBehind, t.behindSince = isBehind, now
	}
}

// WatchState is what an engine knows of the watch that feeds it. Its zero value is a healthy watch,
// or one of which nothing is known.
type WatchState struct {
	// Silence is the age of the newest change that the watch has shown, as far as the clocks can
	// tell, and grows until it shows a newer one; zero before it has shown the heartbeat.
	Silence time.Duration
	// BehindFor is for how long the watch has not been trusted.
	BehindFor time.Duration
	// IsUnanswered says that the API server has not answered a list or a watch since the process began.
	IsUnanswered bool
	// ClosedFor is for how long no watch has been open; zero during the first list, as long as that goes well.
	ClosedFor time.Duration
	// Differing counts the heartbeats of other replicas that summed up other changes than the watch
	// has shown: one of the two has lost some.
	Differing int
}

// WatchState returns the present state of the watch.
func (e *Engine) WatchState() WatchState {
	t := e.trust
	if t.stream == nil {
		return WatchState{}
	}
	now := t.clock.Now()
	isReached, closedFor := t.stream.filling(now)
	state := WatchState{Differing: t.stream.differed(), IsUnanswered: !isReached, ClosedFor: closedFor}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isPaced {
		state.Silence = now.Sub(t.heard)
	}
	if t.isBehind {
		state.BehindFor = max(now.Sub(t.behindSince), 1)
	}
	return state
}

// maxFirstList is for how long the first list of locks may take until it counts as a watch that is closed.
const maxFirstList = time.Minute

// filling reports whether the API server has answered, and for how long no watch has been open. That the
// first list takes long does not count, as long as it goes well, and not for longer than a minute.
func (s *WatchStream) filling(now time.Time) (isReached bool, closedFor time.Duration) {
	isOpen, since := s.state()
	s.mu.Lock()
	defer s.mu.Unlock()
	isFirst := s.isReached && !s.hasOpened && !s.isReported && now.Sub(since) < maxFirstList
	if isOpen || isFirst {
		return true, 0
	}
	return s.isReached, now.Sub(since)
}

// reopen closes a watch that has been open for the given time. The informer opens the next, which
// goes on where this one was, perhaps on another connection.
func (s *WatchStream) reopen(age time.Duration) {
	s.mu.Lock()
	opened := s.open
	isDue := opened != nil && s.clock.Since(s.since) >= age
	s.mu.Unlock()
	if isDue {
		s.log.Info("The watch of locks shows nothing, opening it anew", "openFor", age.String())
		opened.Stop()
	}
}
