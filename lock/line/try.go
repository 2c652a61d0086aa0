package line

import (
	"cmp"
	"context"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
)

// try is one try of a wait, in the line of one home.
type try struct {
	*lineWait
	home  string
	at    place
	into  *mailbox
	began time.Time
	// timer ends at the bound of the wait, and again when the home has taken too long to end it. Nil means no bound.
	timer     clock.Timer
	isOverdue bool

	// Each of these is nil when it is not to be waited for.
	overdue       <-chan time.Time
	changed, left <-chan struct{}

	// seen is closed when there are other homes than the try has last seen.
	seen <-chan struct{}

	// outcome and err are how the try has ended. The result is leaving if another replica is to be asked.
	outcome outcome
	err     error
}

// waitAtHome waits in the line of the present home.
func (w *lineWait) waitAtHome(ctx context.Context) *try {
	t := w.begin(ctx)
	for isOver := t.err != nil; !isOver; {
		select {
		case <-t.into.filled:
			isOver = t.takeOutcome()
		case <-t.left:
			isOver = t.leave(ctx)
		case <-t.overdue:
			isOver = t.passBound()
		case <-t.changed:
			isOver = t.move()
		}
	}
	t.end()
	return t
}

// begin begins a try at the present home.
func (w *lineWait) begin(ctx context.Context) *try {
	view := w.line.members.view()
	w.nextTry()
	t := &try{lineWait: w, home: view.homeOf(w.name), into: newMailbox(w.doubt), began: w.line.timers.Now(), changed: view.changed, seen: view.changed, left: ctx.Done()}
	t.at, t.err = w.enlist(ctx, t.home, t.into)
	if t.err == nil && w.request.Wait < lock.WaitForever {
		t.timer = w.line.timers.NewTimer(w.remaining())
		t.overdue = t.timer.C()
	}
	return t
}

// end records what the next try is to know of this one.
func (t *try) end() {
	if t.timer != nil {
		t.timer.Stop()
	}
	if t.at != nil {
		stood, isPlaced := t.into.placed()
		if isPlaced && stood.Before(t.stood) {
			t.stood = stood
		}
		t.isAccepted = t.isAccepted || isPlaced || t.line.timers.Since(t.began) >= acceptedAfter
	}
}

// takeOutcome ends the try with the outcome in its mailbox.
func (t *try) takeOutcome() (isOver bool) {
	result, _ := t.into.close()
	t.lost(result)
	t.outcome = *result
	return true
}

// leave ends the try of a caller that has left, unless the lock is being taken.
func (t *try) leave(ctx context.Context) (isOver bool) {
	before, isDue := t.into.close()
	switch {
	case isDue:
		t.left = nil // The lock that is being taken is the caller's to give back.
		return false
	case before == nil:
		t.err = t.at.Leave()
	case before.result == done:
		t.outcome = *before
		return true
	default:
		t.lost(before)
		t.err = before.err
	}
	t.err = lock.Interrupted(ctx, t.request.FullKey(), t.err)
	return true
}

// passBound ends the wait at its bound, unless its outcome follows. It is called again if that takes too long.
func (t *try) passBound() (isOver bool) {
	if !t.isOverdue {
		if ended := t.at.GiveUp(); ended != nil {
			t.outcome = *ended
			return true
		}
		t.isOverdue = true
		t.timer.Reset(maxEnding)
		return false
	}
	switch before, isDue := t.into.close(); {
	case isDue:
		t.at.Distrust() // When its stream has ended, the mailbox is filled.
	case before == nil:
		_ = t.at.Leave()
		t.outcome = outcome{result: declined}
		return true
	}
	t.overdue = nil
	return false
}

// move ends the try if another replica is home now, unless the lock is being taken.
func (t *try) move() (isOver bool) {
	view := t.line.members.view()
	if t.changed = view.changed; view.homeOf(t.name) == t.home {
		t.seen = view.changed
		return false
	}
	switch before, isDue := t.into.close(); {
	case isDue:
		t.changed = nil
	case before == nil:
		t.at.Move()
		t.outcome = outcome{result: leaving}
		return true
	}
	return false
}

// lost records that the stream has broken to the home that the caller has waited at, if the result says so.
func (t *try) lost(result *outcome) {
	if result.result != leaving {
		return
	}
	t.offered = cmp.Or(t.into.offered, t.offered)
	if t.home != t.line.self {
		t.doubt()
	}
}

// enlist lets the caller wait at home.
func (w *lineWait) enlist(ctx context.Context, home string, into *mailbox) (place, error) {
	if home != w.line.self {
		if stream := w.line.members.streamTo(home); stream != nil {
			epoch, acquisition := w.line.members.epoch, w.request.Acquisition // It is sent later.
			return stream.enlist(question{
				Namespace: w.namespace, Acquisition: &acquisition,
				Came: w.came.Sub(epoch), IsAccepted: w.isAccepted, Stood: w.stood.Sub(epoch),
				Priority: w.request.Priority, Wait: w.request.Wait, Door: w.request.Door, Trace: w.line.traces.Of(ctx),
			}, into), nil
		}
		into.put(outcome{result: leaving})
		return nowhere{}, nil
	}
	request := w.request
	request.Since = w.since(w.came)
	if w.isAccepted {
		request.PlaceSince = w.since(w.stood)
	}
	at, err := w.line.Enlist(ctx, w.namespace, request, func(granted *v1alpha1.Lock, err error) bool {
		result := outcome{lock: granted, result: done}
		if err != nil {
			result = outcome{result: declined, err: err}
		}
		return into.put(result)
	})
	if err != nil {
		return nil, err
	}
	into.place(w.line.timers.Now().Add(-w.line.Now().Sub(at.Since())))
	return localPlace{at}, nil
}

// localPlace is a place in the line of this replica.
type localPlace struct{ engine.Place }

// GiveUp implements place.
func (p localPlace) GiveUp() *outcome {
	if err := p.Place.GiveUp(); err != nil {
		return &outcome{result: timedOut, err: err}
	}
	return nil
}

// Distrust implements place. The engine has stopped, and its error goes to the caller.
func (localPlace) Distrust() {}

// nowhere is the place of a caller whose home has just gone.
type nowhere struct{}

// Leave implements place.
func (nowhere) Leave() error { return nil }

// Move implements place.
func (nowhere) Move() {}

// GiveUp implements place.
func (nowhere) GiveUp() *outcome { return nil }

// Distrust implements place.
func (nowhere) Distrust() {}
