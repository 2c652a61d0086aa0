package lock

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// Release ends the lock if it is held under the owner token. If callers of this
// engine wait for it, the first of them gets it in the same write. Release is carried
// out even if ctx ends meanwhile.
//
// The error matches [ErrNotHeld], [ErrOwnerMismatch] or [ErrUnavailable].
func (e *Engine) Release(ctx context.Context, namespace string, key v1alpha1.FullKey, owner string) error {
	ctx, cancel := e.detached(ctx)
	defer cancel()
	operation := fmt.Sprintf("release %s in namespace %s", key, namespace)
	objects := e.objects(namespace)
	name := types.NamespacedName{Namespace: namespace, Name: key.ObjectName()}

	known, isKnown := e.grants.take(name, owner, e.clock.Now())
	var unanswered types.UID
	if isKnown {
		err := e.letGo(ctx, objects, known)
		switch {
		case err == nil:
			return nil
		case apierrors.IsNotFound(err):
			return ErrNotHeld
		case !isAnswered(err):
			unanswered = known.uid
		case !apierrors.IsConflict(err):
			e.orphans.add(known)
			return e.requestError(operation, err)
		}
	}
	err := e.end(ctx, operation, objects, name.Name, unanswered, func(current *v1alpha1.Lock) error {
		return rules.Release(current, owner, e.clock.Now())
	})
	if isKnown && errors.Is(err, ErrUnavailable) {
		// The owner is done with it: end it once the API server answers again.
		e.orphans.add(known)
	}
	return err
}

// ForceRelease ends the lock whoever holds it, and logs the reason. Whether the
// caller may is decided before. It is carried out even if ctx ends meanwhile.
//
// The error matches [ErrNotHeld] or [ErrUnavailable].
func (e *Engine) ForceRelease(ctx context.Context, namespace string, key v1alpha1.FullKey, reason string) error {
	ctx, cancel := e.detached(ctx)
	defer cancel()
	operation := fmt.Sprintf("force release of %s in namespace %s", key, namespace)
	var holder string
	err := e.end(ctx, operation, e.objects(namespace), key.ObjectName(), "", func(current *v1alpha1.Lock) error {
		if err := rules.ForceRelease(current, e.clock.Now()); err != nil {
			return err
		}
		holder = current.Spec.Holder
		return nil
	})
	if err == nil {
		e.log.Info("Force-released a Lock", "namespace", namespace, "lock", key.ObjectName(), "holder", holder, "reason", reason)
	}
	return err
}

// end deletes what stands under the name if allowed permits it, and judges again
// whenever the object changed in between. Unanswered is the UID of an object for
// which a permitted delete was sent and not answered, or empty: if that object is
// gone, the delete is taken to have happened.
func (e *Engine) end(ctx context.Context, operation string, objects Objects, name string, unanswered types.UID, allowed func(*v1alpha1.Lock) error) error {
	backoff := newBackoff()
	for {
		read := get
		if unanswered != "" {
			read = e.readBack
		}
		current, err := read(ctx, objects, name)
		switch {
		case err != nil:
			return e.requestError(operation, err)
		case unanswered != "" && (current == nil || current.UID != unanswered):
			return nil
		}
		if err := allowed(current); err != nil {
			return err
		}
		err = deleteExactly(ctx, objects, name, current.UID, current.ResourceVersion)
		switch {
		case err == nil:
			return nil
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		case !isAnswered(err):
			unanswered = current.UID
		default:
			return e.requestError(operation, err)
		}
		if !e.pause(ctx, &backoff) {
			return fmt.Errorf("%s: %w: %w", operation, ErrUnavailable, err)
		}
	}
}

// endGrant ends exactly one grant on behalf of a caller that has gone, and reports
// whether it was there. One that another has replaced is not.
func (e *Engine) endGrant(ctx context.Context, orphan grant) (found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	objects := e.objects(orphan.name.Namespace)
	err = e.end(ctx, "release of an abandoned grant", objects, orphan.name.Name, "", func(current *v1alpha1.Lock) error {
		if current == nil || !orphan.matches(current) {
			return ErrNotHeld
		}
		return nil
	})
	if errors.Is(err, ErrNotHeld) {
		return false, nil
	}
	return err == nil, err
}

// deleteExactly deletes the object only if it is still the one, and in the very
// state, that the decision was made on.
func deleteExactly(ctx context.Context, objects Objects, name string, uid types.UID, resourceVersion string) error {
	return objects.Delete(ctx, name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &resourceVersion},
	})
}
