package lock

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// maxLostRaces is how often a fail-fast acquire tries again after somebody else
// was quicker. Each loss means that the lock was held at that moment.
const maxLostRaces = 10

// Acquire takes a lock in the namespace and does not wait for its holder. It
// returns the lock as stored, with everything stamped.
//
// If ctx ends first, the lock is not held on behalf of the caller, even if its
// creation was already under way: Acquire returns the error of ctx, and a grant
// that comes in later is released.
//
// The error matches [ErrHeld], [ErrInvalid] or [ErrUnavailable].
func (e *Engine) Acquire(ctx context.Context, namespace string, request rules.Acquisition) (*v1alpha1.Lock, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if request.Owner == "" {
		request.Owner = NewOwner()
	}
	granted, err := rules.Grant(namespace, request, e.limits, e.clock.Now())
	if err != nil {
		return nil, err
	}

	type outcome struct {
		lock *v1alpha1.Lock
		err  error
	}
	// Unbuffered, so that a grant is either handed to the caller or ended, never both.
	handover := make(chan outcome)
	e.calls.Go(func() {
		operation, cancel := e.detached(ctx)
		defer cancel()
		attempt := acquisition{engine: e, objects: e.objects(namespace), request: request, granted: granted}
		lock, err := attempt.run(operation)
		select {
		case handover <- outcome{lock, err}:
		case <-ctx.Done():
			if lock != nil {
				e.orphans.add(grantOf(lock))
			}
		}
	})
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
	engine  *Engine
	objects Objects
	request rules.Acquisition
	// granted is what to create while the name is free. It stays the same over all
	// tries, so that an earlier try that went through unnoticed is recognised.
	granted *v1alpha1.Lock
	// unanswered are the grants of writes that may have happened.
	unanswered []grant
}

func (a *acquisition) run(ctx context.Context) (*v1alpha1.Lock, error) {
	var current *v1alpha1.Lock
	for range maxLostRaces {
		next, err := a.next(current)
		if err != nil {
			return nil, err
		}
		lock, err := a.write(ctx, next)
		switch {
		case err == nil:
			return lock, nil
		case isLostRace(err):
			current, err = get(ctx, a.objects, next.Name)
		case !isAnswered(err):
			a.unanswered = append(a.unanswered, grantOf(next))
			current, err = a.engine.readBack(ctx, a.objects, next.Name)
		}
		if err != nil {
			return nil, a.fail(err)
		}
		if a.isOurs(current) {
			return current, nil
		}
	}
	a.abandon()
	return nil, &HeldError{Key: a.request.FullKey()}
}

// next returns the object to write, given what stands under the name.
func (a *acquisition) next(current *v1alpha1.Lock) (*v1alpha1.Lock, error) {
	if current == nil {
		return a.granted, nil
	}
	next, err := rules.TakeOver(current, a.request, a.engine.limits, a.engine.clock.Now(), a.engine.allowance)
	if err != nil {
		a.abandon()
	}
	return next, err
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

// isOurs reports whether current is the result of a write that went unanswered.
func (a *acquisition) isOurs(current *v1alpha1.Lock) bool {
	for _, unanswered := range a.unanswered {
		if current != nil && unanswered.matches(current) {
			return true
		}
	}
	return false
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
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: namespace %q does not exist", ErrInvalid, a.granted.Namespace)
	}
	return requestError(fmt.Sprintf("acquire %s in namespace %s", a.request.FullKey(), a.granted.Namespace), err)
}

// isLostRace reports whether a conditional write failed because the object is no
// longer what the write was decided on.
func isLostRace(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err)
}
