package line

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

// place is that of one caller in the line of one home.
type place interface {
	// Leave gives the place up. It returns what a wait that ended now would have, or nil if that is not known.
	Leave() error
	// Move gives the place up for one at another home.
	Move()
	// GiveUp ends the wait at its bound. It returns nil if the mailbox gets the outcome.
	GiveUp() *outcome
	// Distrust says that the home does not keep to what it has said.
	Distrust()
}

// lineWait is the wait of one caller.
type lineWait struct {
	line      *Line
	namespace string
	name      types.NamespacedName
	request   lock.Request
	// came is when the caller came, and stood since when it has its place: earlier if it has taken up that of a
	// former call.
	came, stood time.Time
	// isAccepted says that a home has let it wait.
	isAccepted bool
	// offered is the last lock that a home has offered, and of which it is not known whether it was taken.
	offered *v1alpha1.Lock
	// state tells whether a home has gone that may have granted the lock.
	state atomic.Int32
	// unknown is the acquisition of which the caller does not know the grants, when the wait is over: by its ID, those of
	// the tries before the one that has got the lock, or of all tries.
	unknown rules.Acquisition
	// tries counts the places that the caller has had. It leaves one before it takes the next, so a home knows by the
	// number whether a grant that it finds can have reached the caller.
	tries uint32
	// declines counts the homes that could not have the lock for the caller.
	declines int
}

const (
	// maxDeclines is how often a wait begins anew at once that its home has declined.
	maxDeclines = 3
	// declinedFor is the pause before that.
	declinedFor = 200 * time.Millisecond
	// waitHereFor is how long the caller then waits at its own replica before it asks its home again.
	waitHereFor = 10 * time.Second
	// maxEnding is how long after its bound the home may take to end a wait.
	maxEnding = 2 * lock.OperationTimeout
	// maxGivingBack bounds how long the end of a grant is tried.
	maxGivingBack = 4 * lock.OperationTimeout
	// lateAfter is after which time a grant is looked for once more.
	lateAfter = 3 * time.Second
	// acceptedAfter is how long a home takes at most to refuse one more. It does not say that it lets a caller wait, unless
	// that has a place of before: a message for each wait would be too many on a hot key.
	acceptedAfter = 100 * time.Millisecond
)

// The states of a wait.
const (
	certain int32 = iota
	// uncertain: a home has gone that may have granted the lock.
	uncertain
	// succeeded: the caller has the lock.
	succeeded
	// failed: the caller has been told that it does not get the lock.
	failed
)

// beginAt gives the caller its place since then. Its wait ends when it would have without.
func (w *lineWait) beginAt(then time.Time) {
	before := w.came.Sub(then)
	w.came, w.stood = then, then
	if w.request.Wait < lock.WaitForever-1-before {
		w.request.Wait += before
	}
}

// nextTry begins a try at another place. No grant reaches the caller by the former ones any more.
func (w *lineWait) nextTry() {
	w.tries++
	w.request.ID = rules.NthTry(w.request.ID, w.tries)
}

// remaining is how much of the wait is left.
func (w *lineWait) remaining() time.Duration {
	if w.request.Wait == lock.WaitForever {
		return lock.WaitForever
	}
	return max(0, w.request.Wait-w.line.timers.Since(w.came))
}

// run waits at one home after the other, until the caller has the lock or its wait is over. A stack keeps the frames
// of those that wait, so run and waitAtHome leave to others what they do not do meanwhile.
func (w *lineWait) run(ctx context.Context) (granted *v1alpha1.Lock, err error) {
	w.line.waits.add(w.name, 1)
	defer func() { w.ended(granted) }()
	for {
		if granted, err = w.follow(ctx, w.waitAtHome(ctx)); granted != nil || err != nil {
			return granted, err
		}
	}
}

// follow does what follows a try. Without a lock and an error the caller is to wait at a home again.
func (w *lineWait) follow(ctx context.Context, ended *try) (*v1alpha1.Lock, error) {
	result := ended.outcome
	switch {
	case ended.err != nil:
		return nil, ended.err
	case result.result == done && !w.isExpired(&result):
		w.line.recent.note(result.lock, w.line.timers.Now())
		return result.lock, nil
	case result.result == done:
		w.offered = result.lock
		lapsed := cmp.Or(rules.Lapsed(result.lock.Spec.TTL.Duration), lock.ErrUnavailable)
		return nil, fmt.Errorf("acquire %s: the grant expired before it was answered: %w", w.request.FullKey(), lapsed)
	case result.result == timedOut:
		return nil, w.timeout(result)
	case result.err != nil:
		return nil, result.err
	case ctx.Err() != nil:
		return nil, lock.Interrupted(ctx, w.request.FullKey(), nil)
	case result.result == declined, w.remaining() == 0:
		return w.askHere(ctx)
	}
	return nil, w.pauseUnless(ctx, ended.seen)
}

// isExpired reports whether a holder must not act on the lock any more. Of a lock that another replica has granted,
// only the time since counts: the clocks may differ by more than the ttl.
func (w *lineWait) isExpired(result *outcome) bool {
	if result.heldUntil.IsZero() {
		return rules.Expired(result.lock, w.line.Now())
	}
	return servertime.Left(result.heldUntil, w.line.timers.Now()) <= 0
}

// ended records that the wait is over; granted is nil unless the caller has the lock.
func (w *lineWait) ended(granted *v1alpha1.Lock) {
	w.line.waits.add(w.name, -1)
	w.unknown = w.request.Acquisition
	w.unknown.ID = rules.NthTry(w.unknown.ID, w.tries+1)
	if granted == nil {
		if w.state.Swap(failed) == uncertain || w.offered != nil {
			w.line.host.later(w.giveBack) // Off the way of the caller.
		}
		return
	}
	id := granted.Annotations[v1alpha1.AcquisitionAnnotation]
	own, _ := rules.SplitTry(w.unknown.ID)
	if acquisition, _ := rules.SplitTry(id); acquisition == own {
		w.unknown.ID = id
	}
	if w.state.Swap(succeeded) == uncertain {
		w.line.Disown(w.namespace, w.unknown)
	}
}

// askHere asks the API server for a lock that the home cannot have for the caller: it says why. If the lock is
// just held, or the API server does not answer, both results are nil: the caller is to wait at home again. If it
// was declined too often, it waits here for a while in between: order is lost then, not the wait.
func (w *lineWait) askHere(ctx context.Context) (*v1alpha1.Lock, error) {
	w.declines++
	w.nextTry()
	request := w.request
	request.Wait = 0
	if w.declines > maxDeclines {
		request.Wait, request.Since = min(w.remaining(), waitHereFor), w.since(w.stood)
		if w.isAccepted {
			request.PlaceSince = request.Since
		}
	}
	granted, err := w.line.Local.Acquire(ctx, w.namespace, request)
	isHeld := errors.Is(err, lock.ErrHeld) || errors.Is(err, lock.ErrTimeout)
	switch {
	case err == nil, !isHeld && !errors.Is(err, lock.ErrUnavailable), !w.line.IsRunning(), errors.Is(err, lock.ErrFoundElsewhere):
		return granted, err
	case w.remaining() > 0:
		return nil, w.pause(ctx)
	case isHeld && !errors.Is(err, lock.ErrTimeout):
		return nil, fmt.Errorf("%w: %w", lock.ErrTimeout, err)
	}
	return nil, err
}

// pause returns an error if ctx ends.
func (w *lineWait) pause(ctx context.Context) error { return w.pauseUnless(ctx, nil) }

// pauseUnless is pause, unless there are other homes: a home that is asked at once what it has just declined may
// decline it for ever.
func (w *lineWait) pauseUnless(ctx context.Context, isChanged <-chan struct{}) error {
	timer := w.line.timers.NewTimer(min(declinedFor, w.remaining()))
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-isChanged:
	case <-ctx.Done():
		return lock.Interrupted(ctx, w.request.FullKey(), nil)
	}
	return nil
}

// doubt records that a home has gone that may have granted the lock.
func (w *lineWait) doubt() {
	if w.state.CompareAndSwap(certain, uncertain) {
		return
	}
	switch w.state.Load() {
	case failed:
		w.line.host.later(w.giveBack)
	case succeeded:
		w.line.Disown(w.namespace, w.unknown)
	}
}

// giveBack ends a grant that the caller does not get: one that was taken before the stream broke, or that a home
// which has gone may have made. No other replica knows of it, so what fails here is tried again until maxGivingBack, also
// while this replica stops.
func (w *lineWait) giveBack() {
	ctx, cancel := context.WithTimeout(context.Background(), maxGivingBack)
	defer cancel()
	if w.offered != nil && w.line.Local.Release(ctx, w.namespace, w.request.FullKey(), proofOf(w.offered)) == nil {
		return
	}
	// A write of the home may be under way still, and may take as long as etcd needs for another leader. One that takes
	// longer is left to the engine.
	defer w.line.Disown(w.namespace, w.unknown)
	for _, after := range []time.Duration{takeBackAfter, lateAfter} {
		isOver := false
		for !isOver {
			select {
			case <-w.line.timers.After(after):
			case <-ctx.Done():
				return
			}
			isOver = w.lookForGrant(ctx)
		}
	}
}

// lookForGrant ends a grant to the caller. It reports false if that is to be tried again.
func (w *lineWait) lookForGrant(ctx context.Context) bool {
	// All waits at a home that has gone may end at once.
	select {
	case w.line.lookups <- struct{}{}:
		defer func() { <-w.line.lookups }()
	case <-ctx.Done():
		return false
	}
	current, err := w.line.Get(ctx, w.namespace, w.request.FullKey())
	switch {
	case errors.Is(err, lock.ErrUnavailable):
		return false
	case err != nil || current.Spec.Owner != w.request.Owner:
		return true
	}
	granted, _ := rules.SplitTry(current.Annotations[v1alpha1.AcquisitionAnnotation])
	if own, _ := rules.SplitTry(w.request.ID); granted != own {
		return true
	}
	return !errors.Is(w.line.Local.Release(ctx, w.namespace, w.request.FullKey(), proofOf(current)), lock.ErrUnavailable)
}

// since is a time of this replica by the clock that grants.
func (w *lineWait) since(then time.Time) time.Time {
	return w.line.Now().Add(-w.line.timers.Since(then))
}

func (w *lineWait) timeout(result outcome) error {
	switch {
	case result.err != nil:
		return result.err
	case result.held != nil:
		return fmt.Errorf("%w: %w", lock.ErrTimeout, result.held)
	}
	return fmt.Errorf("%w: %w", lock.ErrTimeout, &lock.HeldError{Key: w.request.FullKey()})
}
