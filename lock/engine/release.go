package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/observe"
	"forrst.dev/lock-operator/lock/refusal"
	"forrst.dev/lock-operator/lock/rules"
)

// Release ends the lock if the proof permits it. If callers of this engine wait for the lock, the
// first of them gets it in the same write. Release completes even if ctx is cancelled meanwhile. If a
// deadline of ctx passes first, the caller gets [lock.ErrUnavailable], and the engine goes on.
//
// The error matches [lock.ErrNotHeld], [lock.ErrOwnerMismatch], [lock.ErrStale], [lock.ErrRefused] or
// [lock.ErrUnavailable].
func (e *Engine) Release(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof) error {
	err := e.ReleaseGrant(ctx, namespace, key, proof)
	if errors.Is(err, ErrOver) {
		return nil
	}
	return err
}

// ErrOver says that a grant is over, which an unanswered write of its release may have done. It matches [lock.ErrNotHeld].
var ErrOver = fmt.Errorf("the grant is over: %w", lock.ErrNotHeld)

// ReleaseGrant is [Engine.Release] for a caller that may mean a later grant than this engine knows: it also returns
// [ErrOver] if the grant is over, and its own write for that went unanswered.
func (e *Engine) ReleaseGrant(ctx context.Context, namespace string, key v1alpha1.FullKey, proof lock.Proof) error {
	by := callerOf(ctx, e.clock.Now())
	if !e.begin() {
		return e.release(ctx, by, namespace, key, proof)
	}
	if _, hasDeadline := ctx.Deadline(); !hasDeadline || ctx.Err() != nil {
		defer e.calls.Done()
		return e.release(ctx, by, namespace, key, proof)
	}
	released := make(chan error, 1)
	go func() {
		defer e.calls.Done()
		released <- e.release(ctx, by, namespace, key, proof)
	}()
	select {
	case err := <-released:
		return err
	case <-ctx.Done():
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("release %s in namespace %s: there was no answer in time: %w", key, namespace, lock.ErrUnavailable)
	}
	return <-released
}

// release is [Engine.ReleaseGrant] without regard to the deadline of ctx.
func (e *Engine) release(ctx context.Context, by caller, namespace string, key v1alpha1.FullKey, proof lock.Proof) error {
	ctx, cancel := e.detached(ctx)
	defer cancel()
	operation := fmt.Sprintf("release %s in namespace %s", key, namespace)
	objects := e.objects(namespace)
	name := types.NamespacedName{Namespace: namespace, Name: key.ObjectName()}

	shown := e.lockCache.get(name)
	known, isKnown := e.lockCache.take(name, proof, e.clock.Now())
	known.endReason, known.endedBy = audit.ByOwner, actor(ctx, proof)
	change := change{by: by}
	meant := narrowing{given: proof}
	var first firstRelease
	if isKnown {
		if by.mayHaveRenewed(known.lock) {
			return fmt.Errorf("%s: %w; %w", operation, errGoesOn, lock.ErrNothingDone)
		}
		if !proof.IsUnrenewed { // Otherwise no caller may know of the grant, and another call of the request can have it.
			e.queues.endRepeated(known.lock)
		}
		first = e.releaseKnown(ctx, operation, objects, known, func() { e.orphans.add(known.asShown(shown, by)) }, proof.Owner)
		if first.isDone {
			return first.err
		}
		meant.narrowTo(known.lock)
		change.from = known.asShown(shown, by)
	}
	unanswered := first.unanswered
	ended, err := e.end(ctx, operation, objects, name.Name, unanswered, func(current *v1alpha1.Lock) error {
		if err := meant.release(current, e.clock.Now()); err != nil {
			return err
		}
		return change.check(current)
	})
	e.observeRelease(unanswered, ended, err)
	if err == nil {
		err = e.confirmEnd(ctx, operation, objects, name.Name, proof, ended)
	}
	switch {
	case first.isOver && !errors.Is(err, lock.ErrExpired) && (errors.Is(err, lock.ErrNotHeld) || errors.Is(err, lock.ErrOwnerMismatch)):
		return ErrOver
	case err == nil:
		gone := cmp.Or(ended.lock, known.lock)
		e.recordEnd(gone, audit.ByOwner, actor(ctx, proof), ended.isUnconfirmed)
		e.recordGone(gone)
	case isKnown && errors.Is(err, lock.ErrUnavailable):
		// End it once the API server answers again, unless its owner goes on with it.
		known = known.asShown(shown, by)
		if ended.lock != nil {
			known.lock = grantOf(ended.lock).lock
		}
		known.isEnding = unanswered != "" || ended.isSent
		e.orphans.add(known)
	case !ended.isSent && errors.Is(err, lock.ErrUnavailable):
		return fmt.Errorf("%w; %w", err, lock.ErrNothingDone)
	}
	return err
}

// caller is the one that a release is made for.
type caller struct {
	// ctx ends when it leaves. Nil means that it may leave at any time.
	ctx context.Context // The release outlives it.
	// since is when it asked, and hadLeft says that it had left by then.
	since   time.Time
	hadLeft bool
}

func newCaller(ctx context.Context, now time.Time) caller {
	return caller{ctx: ctx, since: now, hadLeft: ctx.Err() != nil}
}

// callerKey is the key of the caller in the contexts of releases.
type callerKey struct{}

// ContextWithCaller returns ctx for [Engine.Release] and [Engine.ReleaseGrant] on behalf of a caller that asked now, by the
// clock of the engine, and leaves when its own context ends. Without it, the context of the release is that of the caller.
func ContextWithCaller(ctx, of context.Context, now time.Time) context.Context {
	return context.WithValue(ctx, callerKey{}, newCaller(of, now))
}

// ContextWithoutCaller is [ContextWithCaller] for a caller of which nothing is known but when it asked: a release ends
// nothing that was renewed since then.
func ContextWithoutCaller(ctx context.Context, since time.Time) context.Context {
	return context.WithValue(ctx, callerKey{}, caller{since: since})
}

func callerOf(ctx context.Context, now time.Time) caller {
	if of, ok := ctx.Value(callerKey{}).(caller); ok {
		return of
	}
	return newCaller(ctx, now)
}

func (c caller) isThere() bool { return c.ctx != nil && c.ctx.Err() == nil }

// mayGoOn reports whether the caller, which has asked for a release, may have renewed the lock since.
func (c caller) mayGoOn() bool { return !c.isThere() && !c.hadLeft }

// isLater reports whether the lock was renewed after the caller asked, as far as clocks tell.
func (c caller) isLater(renewed *v1alpha1.Lock) bool {
	return rules.IsRenewed(renewed) && renewed.Spec.RenewTime.After(c.since)
}

// mayHaveRenewed reports whether the renewal, which is all that is known of the grant, may be one after the caller has left.
func (c caller) mayHaveRenewed(renewed *v1alpha1.Lock) bool { return c.mayGoOn() && c.isLater(renewed) }

// change tells whether a grant was renewed during its release. A caller that has left meanwhile, or was told that there
// was no answer, may go on with the lock through another engine. Where the engine has not seen the grant before, the clock
// that stamped the renewal and its own decide that, and may be wrong by as much as they differ.
type change struct {
	by caller
	// from is the grant as it was before, or as the release found it while its caller was there.
	from grant
}

var errGoesOn = fmt.Errorf("%w: %w", lock.ErrUnavailable, errRenewed)

// check is called with each state of the grant that the release is about to end. It returns an error if the caller may have
// renewed it after it had left.
func (c *change) check(current *v1alpha1.Lock) error {
	isRenewal := c.by.isLater(current)
	if c.from.lock != nil {
		isRenewal = c.from.isRenewedIn(current)
	}
	if isRenewal && c.by.mayGoOn() {
		return errGoesOn
	}
	if c.from.lock == nil || c.by.isThere() {
		c.from = grantOf(current)
	}
	return nil
}

// confirmEnd returns an error if another object has taken the place of the one that was to end, and the proof permits to
// end that, too: it may be the next grant to the same owner, or the one that was meant. What this release has read itself
// is what was meant.
func (e *Engine) confirmEnd(ctx context.Context, operation string, objects Objects, name string, proof lock.Proof, ended ending) error {
	if !ended.isUnconfirmed || ended.lock != nil {
		return nil
	}
	current, err := get(ctx, objects, name)
	if err != nil {
		return e.requestError(operation, err)
	}
	if rules.Release(current, proof, e.clock.Now()) == nil {
		return fmt.Errorf("%s: %w", operation, errHeldAnew)
	}
	return nil
}

// firstRelease is what has become of the release of a grant that the engine knows.
type firstRelease struct {
	// isDone says that there is nothing more to do, and err is the outcome.
	isDone bool
	err    error
	// isOver says that the grant is over. The proof may be for a later one, of which the engine does not know.
	isOver bool
	// unanswered is the UID of the object, if the write went unanswered.
	unanswered types.UID
}

// releaseKnown releases a grant that the engine knows, without a read. It calls leave if that is to be done later.
func (e *Engine) releaseKnown(ctx context.Context, operation string, objects Objects, known grant, leave func(), owner string) firstRelease {
	isDelete, err := e.passOnOrDelete(ctx, objects, known)
	switch {
	case err == nil:
		return firstRelease{isDone: true}
	case errors.Is(err, errEnded):
		return firstRelease{isOver: true}
	case refusal.IsNotFound(err):
		return firstRelease{isDone: true, err: fmt.Errorf("%s: %w", operation, lock.ErrNotHeld)}
	case !definitelyNotApplied(err) && isDelete:
		return firstRelease{unanswered: known.lock.UID}
	case refusal.IsConflict(err):
		return firstRelease{}
	}
	err = e.requestError(operation, err, owner)
	if errors.Is(err, lock.ErrUnavailable) {
		leave()
	} else { // Its owner was told that nothing was done, and goes on with it.
		e.lockCache.put(known.lock, e.clock.Now())
	}
	return firstRelease{isDone: true, err: err}
}

// asShown returns the grant as shown by the informer, if that is newer: another engine may have renewed it before the caller
// asked for the release. Only a later renewal means that it goes on with the lock after all.
func (g grant) asShown(seen *v1alpha1.Lock, by caller) grant {
	if seen != nil && g.matches(seen) && rules.IsNewer(seen.ResourceVersion, g.lock.ResourceVersion) && !by.isLater(seen) {
		g.lock = grantOf(seen).lock
	}
	return g
}

// ending is the result of [Engine.end].
type ending struct {
	// lock is the object that a delete was last sent for; nil if none was.
	lock *v1alpha1.Lock
	// isSent says that a delete of lock went unanswered.
	isSent bool
	// isUnconfirmed says that an unanswered delete is taken to have happened, since the lock is
	// gone.
	isUnconfirmed bool
}

// observeRelease tells how a delete that went unanswered, if there was one, has ended by the result of
// [Engine.end].
func (e *Engine) observeRelease(unanswered types.UID, ended ending, err error) {
	if unanswered == "" && !ended.isSent {
		return
	}
	if !errors.Is(err, lock.ErrUnavailable) {
		err = nil // The API server has answered.
	}
	e.observer.Unanswered(observe.Release, outcomeOf(ended.isUnconfirmed, err))
}

// end deletes the object under the name if allowed permits it, and judges again after each
// conflict. Unanswered is the UID of an object for which a permitted delete went unanswered, or
// empty: if that object is gone, the delete is taken to have happened.
func (e *Engine) end(ctx context.Context, operation string, objects Objects, name string, unanswered types.UID, allowed func(*v1alpha1.Lock) error) (ending, error) {
	var known ending
	backoff := newBackoff()
	for {
		read := get
		if unanswered != "" {
			read = e.readBack
		}
		current, err := read(ctx, objects, name)
		switch {
		case err != nil:
			return known, e.requestError(operation, err)
		case unanswered != "" && (current == nil || current.UID != unanswered):
			known.isUnconfirmed = true
			return known, nil
		}
		if err := allowed(current); err != nil {
			return known, fmt.Errorf("%s: %w", operation, err)
		}
		known.lock = current
		e.announceDelete(ctx, current)
		err = remove(ctx, objects, current)
		switch {
		case err == nil:
			return known, nil
		case refusal.IsConflict(err), refusal.IsNotFound(err): // Another write was faster.
		case !definitelyNotApplied(err):
			unanswered, known.isSent = current.UID, true
		default:
			return known, e.requestError(operation, err, current.Spec.Owner)
		}
		if !e.pause(ctx, &backoff) {
			return known, fmt.Errorf("%s: %w: %w", operation, lock.ErrUnavailable, refusal.WithoutOwners(err, current.Spec.Owner))
		}
	}
}

// errRenewed means that the holder has renewed a grant that was to end without it.
var errRenewed = errors.New("the holder has renewed the lock")

// endGrant ends exactly one grant whose caller has left, and reports whether it found it. A grant
// that another has replaced is not found. A grant that its holder has renewed meanwhile, with the
// owner token that it chose, is found and stays.
func (e *Engine) endGrant(ctx context.Context, orphan grant) (found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	wasUnanswered := orphan.isUnanswered
	objects := e.objects(orphan.lock.Namespace)
	var unanswered types.UID
	if orphan.isEnding {
		unanswered = orphan.lock.UID
	}
	ended, err := e.end(ctx, "release of an abandoned grant", objects, orphan.lock.Name, unanswered, func(current *v1alpha1.Lock) error {
		if current == nil || !orphan.matches(current) {
			return lock.ErrNotHeld
		}
		isRenewed := orphan.isRenewedIn(current) // Its arrival is the state to compare with later.
		switch {
		case orphan.triesBefore != "":
			orphan = grantOf(current) // The engine that has made it has recorded it, if it could.
		case orphan.isUnanswered:
			orphan = e.recordArrival(orphan, current)
		}
		if isRenewed {
			return errRenewed
		}
		return nil
	})
	switch {
	case errors.Is(err, errRenewed):
		return true, nil
	case errors.Is(err, lock.ErrNotHeld):
		return false, nil
	case err == nil:
		e.recordEnd(orphan.lock, orphan.reasonToEnd(), orphan.endedBy, ended.isUnconfirmed)
		e.recordGone(orphan.lock)
	case ended.isSent && !orphan.isEnding, wasUnanswered && !orphan.isUnanswered:
		// The next try needs what this one found out.
		orphan.isEnding = ended.isSent
		e.orphans.add(orphan)
		return true, nil
	}
	return err == nil, err
}

// remove ends the object only in the state that the decision was made on. The object is gone when
// remove succeeds, whatever kept it, such as a delete in the foreground with a dependent that does
// not end.
func remove(ctx context.Context, objects Objects, current *v1alpha1.Lock) error {
	version := current.ResourceVersion
	next, err := rules.WithoutFinalizers(current)
	if err != nil {
		return err
	}
	if next != nil {
		stored, err := objects.Update(ctx, next, metav1.UpdateOptions{})
		if err != nil || !current.DeletionTimestamp.IsZero() {
			return err
		}
		version = stored.ResourceVersion
	}
	return deleteExactly(ctx, objects, current.Name, current.UID, version)
}

// deleteExactly deletes an object without finalizers, only in the state that the decision was made
// on. It waits for no dependents, whatever the default of the API server is.
func deleteExactly(ctx context.Context, objects Objects, name string, uid types.UID, resourceVersion string) error {
	return objects.Delete(ctx, name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &resourceVersion},
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	})
}
