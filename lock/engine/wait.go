package engine

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine/places"
	"forrst.dev/lock-operator/lock/servertime"
)

const (
	// yieldFor is how long a queue pauses after the engine has deleted the lock, unless its informer
	// reports the delete earlier.
	yieldFor = 50 * time.Millisecond
	// headStart is how long the queue pauses after that report: if another replica has waiters,
	// its create is then under way.
	headStart = 3 * time.Millisecond
)

// acquireOrWait joins the queue of the lock. It returns when the lock is acquired or the wait is
// over. It makes no request unless the caller is the head of the queue and the lock may be free. Of a
// grant it tells whether the caller had to wait for others.
func (e *Engine) acquireOrWait(ctx context.Context, namespace string, request lock.Request) (granted *v1alpha1.Lock, hasWaited bool, err error) {
	span := e.tracer.BeginWait(ctx, namespace, request.FullKey())
	defer func() { e.tracer.EndWait(span, err) }()
	name := types.NamespacedName{Namespace: namespace, Name: request.FullKey().ObjectName()}
	joined := waiterFor(request, e.clock.Now())
	joined.span, joined.outcome, joined.left = span, make(chan outcome), make(chan struct{})
	queue, err := e.join(name, joined)
	if err != nil {
		return nil, false, fmt.Errorf("wait for %s: %w", request.FullKey(), err)
	}

	var overdue <-chan time.Time
	if request.Wait < lock.WaitForever {
		timer := e.clock.NewTimer(request.Wait)
		defer timer.Stop()
		overdue = timer.C()
	}
	for {
		select {
		case result := <-joined.outcome:
			return result.lock, joined.hasWaited, result.err
		case <-ctx.Done():
			known := e.queues.leave(queue, joined, e.clock.Now())
			return nil, false, lock.Interrupted(ctx, request.FullKey(), known)
		case <-overdue:
			if err := e.queues.giveUp(queue, joined, e.clock.Now()); err != nil {
				return nil, false, err
			}
		}
	}
}

// join adds the waiter to the queue of the lock. The error is a [*lock.LineFullError].
func (e *Engine) join(name types.NamespacedName, joined *waiter) (*queue, error) {
	queue, needsActor, err := e.queues.add(name, joined, e.clock.Now())
	if needsActor {
		e.calls.Go(func() { e.act(queue) })
	}
	return queue, err
}

// Place is that of a caller at another replica, in the queue of a lock.
type Place struct {
	engine *Engine
	queue  *queue
	waiter *waiter
}

// Enlist lets a caller at another replica wait in the queue of the lock, at the place of [lock.Request]'s
// Since. The other replica bounds its wait, see [Place.GiveUp], and has validated the request. Its Wait is only
// what [Engine.Waiters] tells.
//
// Take is called once at most, unless the caller leaves before. It gets the lock, or the error for which the
// caller cannot have it. It must not block, and is called while other callers wait. If it returns false the
// lock passes to the next waiter. Once it has returned true, the lock is the other replica's to release: this
// one does not know whether the caller still waits. If the lock already records the ID of the request or of an
// earlier try, see [rules.NthTry], another replica has granted it and could not tell: the caller is granted it anew.
//
// If the caller has also renewed that grant, or it is to a later try, take gets [lock.ErrFoundElsewhere].
//
// Ctx is for [Tracer] alone. The error matches [lock.ErrUnavailable], or wraps a [*lock.LineFullError].
func (e *Engine) Enlist(ctx context.Context, namespace string, request lock.Request, take func(*v1alpha1.Lock, error) bool) (Place, error) {
	select {
	case <-e.started:
	default:
		return Place{}, fmt.Errorf("wait for %s: %w", request.FullKey(), errNotStarted)
	}
	if !e.begin() {
		return Place{}, stoppedError(request.FullKey())
	}
	defer e.calls.Done()
	joined := waiterFor(request, e.clock.Now())
	span := e.tracer.BeginWait(ctx, namespace, request.FullKey())
	joined.span = span
	timers := servertime.Timers(e.clock)
	came := timers.Now()
	if !request.Since.IsZero() {
		came = came.Add(-max(0, e.clock.Since(request.Since)))
	}
	joined.take = func(granted *v1alpha1.Lock, err error) bool {
		isTaken := take(granted, err)
		if !isTaken {
			return false
		}
		e.tracer.EndWait(span, err)
		if err == nil {
			e.observer.Granted(timers.Since(came), joined.hasWaited)
		}
		return true
	}
	name := types.NamespacedName{Namespace: namespace, Name: request.FullKey().ObjectName()}
	queue, err := e.join(name, joined)
	if err != nil {
		e.tracer.EndWait(span, err)
		return Place{}, fmt.Errorf("wait for %s: %w", request.FullKey(), err)
	}
	return Place{engine: e, queue: queue, waiter: joined}, nil
}

// Leave gives the place up, and returns what a wait that ended now would have. A grant that is under way passes
// to the next waiter, or is ended. It and its like must not be called twice, nor after Take or a GiveUp that has ended
// the wait.
func (p Place) Leave() error {
	p.engine.tracer.EndWait(p.waiter.span, context.Canceled)
	return p.engine.queues.leave(p.queue, p.waiter, p.engine.clock.Now())
}

// Move is Leave for a caller that takes its place to the line of another replica: it is not kept.
func (p Place) Move() { p.move(false) }

// Lose is Leave for a caller whose replica is gone, or has moved it to another line: its place is kept here alone.
func (p Place) Lose() { p.move(true) }

func (p Place) move(isKept bool) {
	p.engine.tracer.EndWait(p.waiter.span, context.Canceled)
	p.engine.queues.move(p.queue, p.waiter, isKept, p.engine.clock.Now())
}

// Since returns since when the caller has its place: earlier than the request says if it has taken up that of a
// former call.
func (p Place) Since() time.Time {
	p.engine.queues.mu.Lock()
	defer p.engine.queues.mu.Unlock()
	return p.waiter.since
}

// Kept returns the place as it is kept for a caller that comes again, also after Take.
func (p Place) Kept() places.Place {
	p.engine.queues.mu.Lock()
	defer p.engine.queues.mu.Unlock()
	return p.waiter.place(p.queue.name)
}

// IsUnsure reports whether a write for the caller may have happened, or may still happen, of which this engine alone
// knows: if the engine dies, a grant that the caller does not know of may be left. It counts once the caller has left, or
// has its outcome.
func (p Place) IsUnsure() bool {
	p.engine.queues.mu.Lock()
	defer p.engine.queues.mu.Unlock()
	return p.waiter.isUnsure
}

// GiveUp ends the wait at its bound, and returns the reason. It returns nil if a write for the caller is under
// way: Take gets its outcome.
func (p Place) GiveUp() error {
	err := p.engine.queues.giveUp(p.queue, p.waiter, p.engine.clock.Now())
	if err != nil {
		p.engine.tracer.EndWait(p.waiter.span, err)
	}
	return err
}

// Waiting returns how many callers wait in the line of the place.
func (p Place) Waiting() int {
	p.engine.queues.mu.Lock()
	defer p.engine.queues.mu.Unlock()
	return p.queue.waiters.Len()
}

// IsRunning reports whether the engine has started and not stopped.
func (e *Engine) IsRunning() bool {
	select {
	case <-e.started:
	default:
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.stopped
}

// HasWaiters reports whether callers wait.
func (e *Engine) HasWaiters() bool {
	e.queues.mu.Lock()
	defer e.queues.mu.Unlock()
	for _, queue := range e.queues.byName {
		if queue.head() != nil {
			return true
		}
	}
	return false
}

// Known reports whether this engine has granted the lock that the proof is for. Only then a release hands
// the lock on without a read. Limited is the proof for it alone, see [rules.Proof.LimitedTo], and version the
// resourceVersion of its last write that the engine knows.
func (e *Engine) Known(namespace string, key v1alpha1.FullKey, proof lock.Proof) (limited lock.Proof, version string, isKnown bool) {
	known, isKnown := e.lockCache.find(types.NamespacedName{Namespace: namespace, Name: key.ObjectName()}, proof, e.clock.Now())
	if !isKnown {
		return proof, "", false
	}
	if _, err := known.lock.FencingToken(); err != nil {
		return proof, "", false
	}
	return proof.LimitedTo(known.lock), known.lock.ResourceVersion, true
}

// OnRelease makes the engine call tell with each lock that it is about to delete, and the context of the release. It must
// be called before the engine is started. Tell must not block.
func (e *Engine) OnRelease(tell func(release context.Context, ending *v1alpha1.Lock)) {
	e.tellRelease = tell
}

// ReleasedElsewhere says that another engine is about to delete the object under the name, for a release with the context.
// It is for [Tracer] alone.
func (e *Engine) ReleasedElsewhere(release context.Context, name types.NamespacedName, object types.UID) {
	e.queues.noteRelease(release, name, object)
}

// announceDelete is called ahead of each delete.
func (e *Engine) announceDelete(release context.Context, ending *v1alpha1.Lock) {
	e.queues.noteRelease(release, nameOf(ending), ending.UID)
	if e.tellRelease != nil {
		e.tellRelease(release, ending)
	}
}

// Shown returns the lock that the informer shows, or nil.
func (e *Engine) Shown(name types.NamespacedName) *v1alpha1.Lock { return e.lockCache.get(name) }

// Keep keeps a place of a caller that has left the line of another replica. If the caller waits here already,
// it stands there from now on.
func (e *Engine) Keep(left places.Place) {
	e.queues.mu.Lock()
	defer e.queues.mu.Unlock()
	e.queues.keep(left, e.clock.Now())
}

// lostAfter is how long no watch may be open until another replica serves the waiters better.
const lostAfter = 750 * time.Millisecond

// HasLostTouch reports whether the engine does not keep up with the API server: another replica that does serves waiters
// sooner.
func (e *Engine) HasLostTouch() bool {
	watch := e.WatchState()
	return watch.IsUnanswered || watch.ClosedFor > lostAfter || e.reach.isFailing()
}

// SeemsFree reports whether neither the informer nor a caller that waits here shows that the lock is held.
func (e *Engine) SeemsFree(name types.NamespacedName) bool {
	return e.queues.isEmpty(name) && e.lockCache.get(name) == nil
}

func (q *queues) isEmpty(name types.NamespacedName) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.byName[name] == nil
}

// Now is the time by which the engine grants.
func (e *Engine) Now() time.Time { return e.clock.Now() }
