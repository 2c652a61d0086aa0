package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/observe"
	"forrst.dev/lock-operator/lock/refusal"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

// maxTries is how many writes one acquire makes at most. A write that lost against another caller's
// means that the lock was held at that moment; one that went unanswered, and did not happen, means
// that the API server answers reads only, as with a full etcd.
const maxTries = 10

// Acquire takes a lock in the namespace and waits for its holder as long as the request says. It
// returns the lock as stored, with all stamps.
//
// Waiting callers of this engine are served first in, first out; they compete with those of other
// engines. A caller that does not wait tries with one write, even if others wait: only etcd knows
// whether the lock is free.
//
// If ctx ends first, Acquire returns a [*lock.InterruptedError] and the caller does not hold the lock, even
// if its create was already under way: the engine releases a later grant or hands it to the next
// waiter.
//
// A grant that expires before it can be returned, since the API server was slower than its ttl, is
// ended. The caller gets [lock.ErrUnavailable], or [lock.ErrInvalid] if its ttl is less than 100 ms. So is one whose answer
// shows that it was stamped by a clock that was wrong by more than the allowance: the caller gets [lock.ErrUnavailable].
//
// The error matches [lock.ErrHeld], [lock.ErrTimeout], [lock.ErrInvalid], [lock.ErrRefused],
// [lock.ErrUnavailable] or, if the engine's writes are admitted, [lock.ErrForbidden].
func (e *Engine) Acquire(ctx context.Context, namespace string, request lock.Request) (granted *v1alpha1.Lock, err error) {
	if ctx.Err() != nil {
		return nil, lock.Interrupted(ctx, request.FullKey(), nil)
	}
	if request.Owner == "" {
		request.Owner = lock.NewOwner()
	}
	if e.isAdmitted {
		request.Holder, request.HolderUID = stampedLater, ""
	}
	if !e.isValidated {
		if _, err := request.Validate(e.limits); err != nil {
			return nil, err
		}
	}
	if err := e.checkNamespace(namespace); err != nil {
		return nil, err
	}
	if err := e.awaitStart(ctx); err != nil {
		return nil, fmt.Errorf("acquire %s: %w", request.FullKey(), err)
	}
	if !e.begin() {
		return nil, stoppedError(request.FullKey())
	}
	timers := servertime.Timers(e.clock)
	began, hasWaited := timers.Now(), false
	if request.Wait > 0 {
		granted, hasWaited, err = e.acquireOrWait(ctx, namespace, request)
		e.calls.Done()
	} else {
		granted, err = e.acquireNow(ctx, namespace, request.Acquisition)
	}
	if err == nil {
		e.observer.Granted(timers.Since(began), hasWaited)
	}
	return granted, err
}

// acquireNow makes one attempt. It ends the count that [Engine.begin] began.
func (e *Engine) acquireNow(ctx context.Context, namespace string, request rules.Acquisition) (*v1alpha1.Lock, error) {
	// Unbuffered: a grant either reaches the caller or is ended, never both.
	answer := make(chan outcome)
	var unanswered atomic.Pointer[error]
	go func() {
		defer e.calls.Done()
		operation, cancel := e.detached(ctx)
		defer cancel()
		attempt := acquireAttempt{
			engine: e, objects: e.objects(namespace), namespace: namespace, request: request,
			onUnanswered: func(err error) { unanswered.Store(&err) },
		}
		granted, err := attempt.run(operation)
		isRenewed := err == nil && rules.IsRenewed(granted) // Its caller has found it by another call, and goes on with it.
		if isMisstamped := attempt.isMisstamped() && !isRenewed; err == nil && (isMisstamped || rules.Expired(granted, e.clock.Now())) {
			e.endUndelivered(operation, attempt.objects, abandoned(granted))
			granted, err = nil, undeliveredError(attempt.operation(), granted, isMisstamped)
		}
		select {
		case answer <- outcome{granted, err}:
		case <-ctx.Done():
			if granted != nil && !isRenewed {
				e.orphans.add(grantOf(granted))
			}
		}
	}()
	select {
	case result := <-answer:
		if result.err == nil {
			e.lockCache.put(result.lock, e.clock.Now())
		}
		return result.lock, result.err
	case <-ctx.Done():
		if err := unanswered.Load(); err != nil {
			return nil, lock.Interrupted(ctx, request.FullKey(), *err)
		}
		return nil, lock.Interrupted(ctx, request.FullKey(), nil)
	}
}

// acquireAttempt is one attempt to acquire. Each write is conditional on the object that the decision
// was made on.
type acquireAttempt struct {
	engine    *Engine
	objects   Objects
	namespace string
	request   rules.Acquisition
	// current is the object last seen under the name, or nil.
	current *v1alpha1.Lock
	// isReplacing says that the attempt has deleted an expired lock of the key, so that the next one adds
	// nothing to the namespace.
	isReplacing bool
	// stamped is the time of the last write.
	stamped servertime.Reading
	// unanswered are the grants of writes that may have happened.
	unanswered []grant
	// onUnanswered is told of each write that may have happened, before it is looked for.
	onUnanswered func(error)
}

// run tries until the lock is acquired or another owner is seen to hold it. The grant that it
// returns may have expired since it was stamped, or be misstamped.
func (a *acquireAttempt) run(ctx context.Context) (*v1alpha1.Lock, error) {
	backoff := newBackoff()
	var unanswered error // the error of the last write, if it went unanswered
	for range maxTries {
		desired, err := a.desired(ctx)
		if err != nil {
			a.abandon()
			return nil, err
		}
		stored, err := a.write(ctx, desired)
		unanswered = nil
		if err == nil {
			a.engine.recordGrant(a.sent(desired), stored)
		}
		switch {
		case err == nil:
			return a.granted(stored), nil
		case isLostRace(err):
			err = a.lose(ctx, desired)
		case !definitelyNotApplied(err):
			unanswered = err
			a.onUnanswered(a.engine.requestError(a.operation(), err, a.owners()...))
			a.trackUnanswered(a.sent(desired))
			a.current, err = a.resolve(ctx, desired.Name, &backoff, err)
		}
		if err != nil {
			return nil, a.fail(err)
		}
		if sent, isOurs := a.findUnanswered(a.current); isOurs {
			a.engine.recordGrant(sent, a.current)
			a.stamped = sent.stamped
			return a.granted(a.current), nil
		}
	}
	if unanswered != nil {
		return nil, a.fail(unanswered)
	}
	a.abandon()
	return nil, &lock.HeldError{Key: a.request.FullKey()}
}

// isMisstamped reports whether the grant that the attempt has made must not reach its caller, see [Engine.isMisstamped].
func (a *acquireAttempt) isMisstamped() bool { return a.engine.isMisstamped(a.stamped) }

// lose reads what a write has lost against.
func (a *acquireAttempt) lose(ctx context.Context, desired *v1alpha1.Lock) (err error) {
	sent := a.sent(desired)
	a.current, err = a.readWinner(ctx, desired.Name)
	if err == nil && a.current != nil && sent.matches(a.current) && rules.IsRandomOwner(a.request.Owner) {
		// A proxy on the way has repeated the write, which met its own success.
		a.trackUnanswered(sent)
	}
	return err
}

// desired returns the object to write over the current one.
func (a *acquireAttempt) desired(ctx context.Context) (*v1alpha1.Lock, error) {
	engine := a.engine
	a.stamped = servertime.Read(engine.clock)
	if a.current == nil {
		if !a.isReplacing {
			if err := engine.checkRoom(a.namespace, a.request.FullKey()); err != nil {
				return nil, err
			}
		}
		desired := rules.Grant(a.namespace, a.request, engine.limits, engine.stamp(a.stamped.Time))
		engine.clearStamps(desired, "")
		return desired, nil
	}
	now := a.stamped.Time
	grace := engine.graceNow()
	// Judge by now, not by the stamp: a stamp may be ahead of the clock, which must not make the
	// lock expire earlier.
	if err := rules.Reclaim(a.current, now, grace); err != nil {
		return nil, err
	}
	if !rules.IsReusable(a.current) {
		if err := a.reclaim(ctx); err != nil {
			return nil, engine.requestError(a.operation(), err, a.current.Spec.Owner)
		}
		a.isReplacing = true
		return a.desired(ctx)
	}
	desired, err := rules.TakeOver(a.current, a.request, engine.limits, engine.stamp(now), grace)
	if err != nil {
		return nil, err
	}
	engine.clearStamps(desired, "")
	return desired, nil
}

// reclaim ends the expired lock whose object cannot carry the next grant. The create that follows
// shows whether the name is free.
func (a *acquireAttempt) reclaim(ctx context.Context) error {
	expired := a.current
	err := remove(ctx, a.objects, expired)
	switch {
	case err == nil, refusal.IsNotFound(err):
		a.engine.recordEnd(expired, audit.Reaped, "", err != nil)
	case !definitelyNotApplied(err):
		reaped := grantOf(expired)
		reaped.isEnding, reaped.endReason = true, audit.Reaped
		a.engine.orphans.add(reaped)
		return err
	case !refusal.IsConflict(err):
		return err
	}
	a.current = nil
	return nil
}

// readWinner reads the object that won a race. If the object has not changed, the API server
// judges it differently from this engine, and another try would not help.
func (a *acquireAttempt) readWinner(ctx context.Context, name string) (*v1alpha1.Lock, error) {
	current, err := get(ctx, a.objects, name)
	if err == nil && current != nil && a.current != nil && current.ResourceVersion == a.current.ResourceVersion {
		return nil, rules.HeldAt(current, a.engine.clock.Now())
	}
	return current, err
}

func (a *acquireAttempt) write(ctx context.Context, desired *v1alpha1.Lock) (*v1alpha1.Lock, error) {
	if desired.ResourceVersion == "" {
		return a.objects.Create(ctx, desired, metav1.CreateOptions{})
	}
	lock, err := a.objects.Update(ctx, desired, metav1.UpdateOptions{})
	if refusal.IsNotFound(err) {
		// Another caller deleted the expired lock meanwhile: a lost race.
		err = apierrors.NewConflict(v1alpha1.Resource("locks"), desired.Name, err)
	}
	return lock, err
}

// revoke ends a grant that must not reach the caller. If its end is unknown, the grant becomes an
// orphan: its expireTime may be far away.
func (e *Engine) revoke(ctx context.Context, objects Objects, stored *v1alpha1.Lock, reason audit.Reason) error {
	err := remove(ctx, objects, stored)
	if err == nil || refusal.IsNotFound(err) {
		e.recordEnd(stored, reason, "", err != nil)
		return nil
	}
	revoked := grantOf(stored)
	revoked.isEnding, revoked.endReason = !definitelyNotApplied(err), reason
	e.orphans.add(revoked)
	if refusal.IsConflict(err) {
		return nil // Whoever goes on reads the present state.
	}
	return err
}

// resolve finds out whether a write that failed with the error unanswered happened. If it did not,
// resolve pauses, since the API server is not answering.
func (a *acquireAttempt) resolve(ctx context.Context, name string, backoff *wait.Backoff, unanswered error) (*v1alpha1.Lock, error) {
	current, err := a.engine.readBack(ctx, a.objects, name)
	_, isOurs := a.findUnanswered(current)
	a.engine.observer.Unanswered(observe.Acquire, outcomeOf(isOurs, err))
	if err != nil || isOurs {
		return current, err
	}
	if !a.engine.pause(ctx, backoff) {
		return nil, unanswered
	}
	return current, nil
}

// granted returns the lock after an attempt that acquired it.
func (a *acquireAttempt) granted(lock *v1alpha1.Lock) *v1alpha1.Lock {
	// An earlier write may still happen after this grant is released.
	a.unanswered = slices.DeleteFunc(a.unanswered, func(sent grant) bool { return sent.matches(lock) })
	a.abandon()
	return lock
}

func (a *acquireAttempt) trackUnanswered(unanswered grant) {
	unanswered.isUnanswered = true
	a.unanswered = append(a.unanswered, unanswered)
}

// sent returns the grant that the write of desired makes.
func (a *acquireAttempt) sent(desired *v1alpha1.Lock) grant {
	sent := a.engine.sentGrant(desired)
	sent.event, sent.stamped = audit.Granted, a.stamped
	if a.current != nil {
		sent.event, sent.former = audit.TakenOver, new(grantOf(a.current))
	}
	return sent
}

// findUnanswered returns the unanswered grant that current records.
func (a *acquireAttempt) findUnanswered(current *v1alpha1.Lock) (sent grant, isOurs bool) {
	if current == nil {
		return grant{}, false
	}
	index := slices.IndexFunc(a.unanswered, func(sent grant) bool { return sent.matches(current) })
	if index < 0 {
		return grant{}, false
	}
	return a.unanswered[index], true
}

// abandon turns the unanswered writes into orphans: the caller is about to learn that it holds
// nothing.
func (a *acquireAttempt) abandon() {
	for _, unanswered := range a.unanswered {
		a.engine.orphans.add(unanswered)
	}
}

func (a *acquireAttempt) operation() string {
	return fmt.Sprintf("acquire %s in namespace %s", a.request.FullKey(), a.namespace)
}

func (a *acquireAttempt) fail(err error) error {
	a.abandon()
	operation := a.operation()
	if errors.Is(err, lock.ErrHeld) {
		return err
	}
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok && apierrors.IsNotFound(err) {
		if details := status.ErrStatus.Details; details != nil && details.Kind == "namespaces" {
			return fmt.Errorf("%s: %w: the namespace does not exist", operation, lock.ErrInvalid)
		}
	}
	return a.engine.requestError(operation, err, a.owners()...)
}

// owners are the owner tokens that the requests of the attempt have.
func (a *acquireAttempt) owners() []string {
	owners := []string{a.request.Owner}
	if a.current != nil {
		owners = append(owners, a.current.Spec.Owner)
	}
	return owners
}

// isLostRace reports whether a conditional write failed because the object has changed, or because
// admission says that the lock is held.
func isLostRace(err error) bool {
	_, isRefused := refusal.Of(err)
	return !isRefused && (apierrors.IsAlreadyExists(err) || refusal.IsConflict(err) || apierrors.HasStatusCause(err, v1alpha1.CauseTypeHeld))
}
