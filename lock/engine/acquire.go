package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/rules"
)

// maxLostRaces is how often an acquire tries again after another caller was
// quicker. Each loss means that the lock was held at that moment.
const maxLostRaces = 10

// Acquire takes a lock in the namespace, waiting for its holder as long as the request
// says. It returns the lock as stored, with everything stamped.
//
// Callers that wait are served first in, first out; those of other engines compete. A
// caller that does not wait tries with one write, whether or not others wait: only etcd knows
// whether the lock is free.
//
// If ctx ends first, the lock is not held on behalf of the caller, even if its
// creation was already under way: Acquire returns the error of ctx, and a grant
// that comes in later is released or goes to the next in the queue.
//
// The error matches [lock.ErrHeld], [lock.ErrTimeout], [lock.ErrInvalid], [lock.ErrUnavailable], or, if the
// lock expired before Acquire could return it, [lock.ErrExpired].
func (e *Engine) Acquire(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if request.Owner == "" {
		request.Owner = lock.NewOwner()
	}
	if e.isAdmitted {
		request.Holder = stampedLater
	}
	if !e.isValidated {
		if err := request.Validate(e.limits); err != nil {
			return nil, err
		}
	}
	if err := e.awaitStart(ctx); err != nil {
		return nil, fmt.Errorf("acquire %s: %w", request.FullKey(), err)
	}
	if !e.begin() {
		return nil, stoppedError(request)
	}
	if request.Wait > 0 {
		defer e.calls.Done()
		return e.acquireOrWait(ctx, namespace, request)
	}
	return e.acquireNow(ctx, namespace, request.Acquisition)
}

// acquireNow makes one attempt and takes over the count of [Engine.begin].
func (e *Engine) acquireNow(ctx context.Context, namespace string, request rules.Acquisition) (*v1alpha1.Lock, error) {
	// Unbuffered, so that a grant is either handed to the caller or ended, never both.
	answer := make(chan outcome)
	go func() {
		defer e.calls.Done()
		operation, cancel := e.detached(ctx)
		defer cancel()
		attempt := acquisition{engine: e, objects: e.objects(namespace), namespace: namespace, request: request}
		lock, err := attempt.run(operation)
		select {
		case answer <- outcome{lock, err}:
		case <-ctx.Done():
			if lock != nil {
				e.orphans.add(grantOf(lock))
			}
		}
	}()
	select {
	case result := <-answer:
		if result.err == nil {
			e.grants.put(result.lock, e.clock.Now())
		}
		return result.lock, result.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// acquisition is one attempt to acquire: writes that are judged on what is known
// to stand under the name, each conditional on just that.
type acquisition struct {
	engine    *Engine
	objects   Objects
	namespace string
	request   rules.Acquisition
	// current is what was last seen under the name, or nil.
	current *v1alpha1.Lock
	// unanswered are the grants of writes that may have happened.
	unanswered []grant
}

// run tries until the lock is acquired or seen to be held by another owner.
func (a *acquisition) run(ctx context.Context) (*v1alpha1.Lock, error) {
	backoff := newBackoff()
	for range maxLostRaces {
		next, err := a.next(ctx)
		if err != nil {
			a.abandon()
			return nil, err
		}
		stored, err := a.write(ctx, next)
		if err == nil {
			a.engine.recordGrant(a.sent(next), stored)
		}
		switch {
		case err == nil && a.engine.isMisstamped(stored):
			a.current, err = nil, a.revoke(ctx, stored)
		case err == nil:
			return a.granted(stored)
		case isLostRace(err):
			a.current, err = a.judgeAgain(ctx, next.Name)
		case !isAnswered(err):
			a.trackUnanswered(a.sent(next))
			a.current, err = a.resolve(ctx, next.Name, &backoff, err)
		}
		if err != nil {
			return nil, a.fail(err)
		}
		if sent, isOurs := a.ours(a.current); isOurs {
			a.engine.recordGrant(sent, a.current)
			return a.granted(a.current)
		}
	}
	a.abandon()
	return nil, &lock.HeldError{Key: a.request.FullKey()}
}

// next returns the object to write, given what stands under the name.
func (a *acquisition) next(ctx context.Context) (*v1alpha1.Lock, error) {
	engine := a.engine
	if a.current == nil {
		next := rules.Grant(a.namespace, a.request, engine.limits, engine.stamp(engine.clock.Now()))
		engine.prepare(next, "")
		return next, nil
	}
	now, err := engine.checkedNow(ctx, a.objects, a.current.Name)
	if err != nil {
		return nil, engine.requestError(a.operation(), err)
	}
	// A stamp may be ahead of the clock, which must not make the lock expire earlier.
	if err := rules.Reclaim(a.current, now, engine.graceNow()); err != nil {
		return nil, err
	}
	next, err := rules.TakeOver(a.current, a.request, engine.limits, engine.stamp(now), engine.graceNow())
	if err != nil {
		return nil, err
	}
	engine.prepare(next, "")
	return next, nil
}

// judgeAgain reads what has won a race. If it is what was there before, the API server
// judges otherwise than this engine, and there is no use in repeating it.
func (a *acquisition) judgeAgain(ctx context.Context, name string) (*v1alpha1.Lock, error) {
	current, err := get(ctx, a.objects, name)
	if err == nil && current != nil && a.current != nil && current.ResourceVersion == a.current.ResourceVersion {
		return nil, rules.HeldBy(current)
	}
	return current, err
}

func (a *acquisition) write(ctx context.Context, next *v1alpha1.Lock) (*v1alpha1.Lock, error) {
	if next.ResourceVersion == "" {
		return a.objects.Create(ctx, next, metav1.CreateOptions{})
	}
	lock, err := a.objects.Update(ctx, next, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		// The expired lock was deleted meanwhile, which is a lost race like any other.
		err = apierrors.NewConflict(v1alpha1.Resource("locks"), next.Name, err)
	}
	return lock, err
}

// revoke ends a grant that the caller is not to have. If it is not known
// whether it ended, it becomes an orphan: its expireTime may be far away.
func (a *acquisition) revoke(ctx context.Context, stored *v1alpha1.Lock) error {
	err := deleteExactly(ctx, a.objects, stored.Name, stored.UID, stored.ResourceVersion)
	if err == nil {
		a.engine.recordRelease(stored, audit.Abandoned, "", false)
	}
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	abandoned := grantOf(stored)
	abandoned.isEnding = !isAnswered(err)
	a.engine.orphans.add(abandoned)
	if apierrors.IsConflict(err) {
		return nil // The next try finds what has become of it.
	}
	return err
}

// resolve finds out what became of a write that failed with unanswered. If it did not
// happen, it waits a moment, since the API server does not answer.
func (a *acquisition) resolve(ctx context.Context, name string, backoff *wait.Backoff, unanswered error) (*v1alpha1.Lock, error) {
	current, err := a.engine.readBack(ctx, a.objects, name)
	if _, isOurs := a.ours(current); err != nil || isOurs {
		return current, err
	}
	if !a.engine.pause(ctx, backoff) {
		return nil, unanswered
	}
	return current, nil
}

// granted returns the lock unless it took so long to acquire that it has expired.
func (a *acquisition) granted(lock *v1alpha1.Lock) (*v1alpha1.Lock, error) {
	// An earlier try may still arrive when this grant has been released.
	a.unanswered = slices.DeleteFunc(a.unanswered, func(sent grant) bool { return sent.matches(lock) })
	a.abandon()
	if !rules.Expired(lock, a.engine.clock.Now()) {
		return lock, nil
	}
	return nil, expiredError(a.operation())
}

func expiredError(operation string) error {
	return fmt.Errorf("%s: the answer took longer than the ttl: %w", operation, lock.ErrExpired)
}

func (a *acquisition) trackUnanswered(unanswered grant) {
	unanswered.isUnanswered = true
	a.unanswered = append(a.unanswered, unanswered)
}

// sent returns the grant that next makes, which was decided on what is current.
func (a *acquisition) sent(next *v1alpha1.Lock) grant {
	sent := a.engine.sentGrant(next)
	sent.event = audit.Granted
	if a.current != nil {
		sent.event, sent.former = audit.TakenOver, new(grantOf(a.current))
	}
	return sent
}

// ours returns the grant that went unanswered and of which current is the result.
func (a *acquisition) ours(current *v1alpha1.Lock) (sent grant, isOurs bool) {
	if current == nil {
		return grant{}, false
	}
	index := slices.IndexFunc(a.unanswered, func(sent grant) bool { return sent.matches(current) })
	if index < 0 {
		return grant{}, false
	}
	return a.unanswered[index], true
}

// abandon makes orphans of the writes that may still arrive: the caller is about to be
// told that it holds nothing.
func (a *acquisition) abandon() {
	for _, unanswered := range a.unanswered {
		a.engine.orphans.add(unanswered)
	}
}

func (a *acquisition) operation() string { return acquireOperation(a.request.FullKey(), a.namespace) }

func acquireOperation(key v1alpha1.FullKey, namespace string) string {
	return fmt.Sprintf("acquire %s in namespace %s", key, namespace)
}

func (a *acquisition) fail(err error) error {
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
	return a.engine.requestError(operation, err)
}

// isLostRace reports whether a conditional write failed because the object is no
// longer what the write was decided on, or because admission says that it is held.
func isLostRace(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.HasStatusCause(err, v1alpha1.CauseTypeHeld)
}
