package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// maxLostRaces is how often an acquire tries again after somebody else was
// quicker. Each loss means that the lock was held at that moment.
const maxLostRaces = 10

// Acquire takes a lock in the namespace and does not wait for its holder. It
// returns the lock as stored, with everything stamped.
//
// If ctx ends first, the lock is not held on behalf of the caller, even if its
// creation was already under way: Acquire returns the error of ctx, and a grant
// that comes in later is released.
//
// The error matches [ErrHeld], [ErrInvalid], [ErrUnavailable], or, if the lock expired
// before Acquire could return it, [ErrExpired].
func (e *Engine) Acquire(ctx context.Context, namespace string, request rules.Acquisition) (*v1alpha1.Lock, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if request.Owner == "" {
		request.Owner = NewOwner()
	}
	// What cannot be granted is refused before anything is sent.
	if _, err := rules.Grant(namespace, request, e.limits, e.clock.Now()); err != nil {
		return nil, err
	}
	if !e.begin() {
		return nil, fmt.Errorf("acquire %s: the engine has stopped: %w", request.FullKey(), ErrUnavailable)
	}

	type outcome struct {
		lock *v1alpha1.Lock
		err  error
	}
	// Unbuffered, so that a grant is either handed to the caller or ended, never both.
	handover := make(chan outcome)
	go func() {
		defer e.calls.Done()
		operation, cancel := e.detached(ctx)
		defer cancel()
		attempt := acquisition{engine: e, objects: e.objects(namespace), namespace: namespace, request: request}
		lock, err := attempt.run(operation)
		select {
		case handover <- outcome{lock, err}:
		case <-ctx.Done():
			if lock != nil {
				e.orphans.add(grantOf(lock))
			}
		}
	}()
	select {
	case result := <-handover:
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
	// unanswered are the grants of writes that may have happened.
	unanswered []grant
}

func (a *acquisition) run(ctx context.Context) (*v1alpha1.Lock, error) {
	var current *v1alpha1.Lock
	backoff := newBackoff()
	for lost := 0; lost < maxLostRaces; {
		next, err := a.next(current)
		if err != nil {
			a.abandon()
			return nil, err
		}
		stored, err := a.write(ctx, next)
		switch {
		case err == nil:
			return a.granted(stored)
		case isLostRace(err):
			lost++
			current, err = get(ctx, a.objects, next.Name)
		case !isAnswered(err):
			a.remember(next)
			current, err = a.settle(ctx, next.Name, &backoff, err)
		}
		if err != nil {
			return nil, a.fail(err)
		}
		if a.isOurs(current) {
			return a.granted(current)
		}
	}
	a.abandon()
	return nil, &HeldError{Key: a.request.FullKey()}
}

// next returns the object to write, given what stands under the name.
func (a *acquisition) next(current *v1alpha1.Lock) (*v1alpha1.Lock, error) {
	if current == nil {
		return rules.Grant(a.namespace, a.request, a.engine.limits, a.engine.stamp())
	}
	// A stamp may be ahead of the clock, which must not make the lock expire earlier.
	if err := rules.Reclaim(current, a.engine.clock.Now(), a.engine.allowance); err != nil {
		return nil, err
	}
	return rules.TakeOver(current, a.request, a.engine.limits, a.engine.stamp(), a.engine.allowance)
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

// settle finds out what became of a write that failed with unanswered. If it did not
// happen, it waits a moment, since the API server is in trouble.
func (a *acquisition) settle(ctx context.Context, name string, backoff *wait.Backoff, unanswered error) (*v1alpha1.Lock, error) {
	current, err := a.engine.readBack(ctx, a.objects, name)
	if err != nil || a.isOurs(current) {
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
	return nil, fmt.Errorf("acquire %s in namespace %s: the answer took longer than the ttl: %w", a.request.FullKey(), a.namespace, ErrExpired)
}

func (a *acquisition) remember(next *v1alpha1.Lock) {
	unanswered := grantOf(next)
	unanswered.isUnanswered = true
	a.unanswered = append(a.unanswered, unanswered)
}

// isOurs reports whether current is the result of a write that went unanswered.
func (a *acquisition) isOurs(current *v1alpha1.Lock) bool {
	return current != nil && slices.ContainsFunc(a.unanswered, func(sent grant) bool { return sent.matches(current) })
}

// abandon has writes that may still arrive cleaned up: the caller is about to be
// told that it holds nothing.
func (a *acquisition) abandon() {
	for _, unanswered := range a.unanswered {
		a.engine.orphans.add(unanswered)
	}
}

func (a *acquisition) fail(err error) error {
	a.abandon()
	operation := fmt.Sprintf("acquire %s in namespace %s", a.request.FullKey(), a.namespace)
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok && apierrors.IsNotFound(err) {
		if details := status.ErrStatus.Details; details != nil && details.Kind == "namespaces" {
			return fmt.Errorf("%s: %w: the namespace does not exist", operation, ErrInvalid)
		}
	}
	return requestError(operation, err)
}

// isLostRace reports whether a conditional write failed because the object is no
// longer what the write was decided on.
func isLostRace(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err)
}
