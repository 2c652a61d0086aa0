package engine

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/refusal"
	"forrst.dev/lock-operator/lock/rules"
)

// ForceRelease ends the lock of any holder, and logs the reason. The engine does not check whether
// the user of [lock.ContextWithUser] may do so: its caller does. An engine whose writes are
// admitted needs a reason, and the verb force-release on locks. It ends the grant that it finds first, which the precondition
// must permit, and no later one. A write that is under way when ctx ends is completed, and none is begun after that. Writing
// the reason and the delete count as one.
//
// The error matches [lock.ErrNotHeld], [lock.ErrOtherGrant], [lock.ErrRefused], [lock.ErrUnavailable], the error of ctx or, if
// admission requires a reason and none is given, [lock.ErrInvalid].
func (e *Engine) ForceRelease(ctx context.Context, namespace string, key v1alpha1.FullKey, reason string, preconditions ...lock.Precondition) error {
	operation := fmt.Sprintf("force release of %s in namespace %s", key, namespace)
	caller := ctx
	var found *v1alpha1.Lock
	// isAnnounced says that the reason was written on its lock. Then it ends whatever becomes of the caller: the reason must
	// not stay on a lock that goes on.
	isAnnounced := false
	allowed := func(current *v1alpha1.Lock) error {
		if err := caller.Err(); err != nil && !isAnnounced {
			return fmt.Errorf("%s: %w", operation, err)
		}
		if err := rules.ForceRelease(current, lock.PreconditionOf(preconditions), e.clock.Now()); err != nil {
			return err
		}
		if found == nil {
			found = current
		}
		if current.UID != found.UID || current.Spec.Owner != found.Spec.Owner || !current.Spec.AcquireTime.Equal(found.Spec.AcquireTime) {
			return lock.ErrOtherGrant
		}
		return nil
	}
	ctx, cancel := e.detached(ctx)
	defer cancel()
	objects := e.objects(namespace)
	if e.isAdmitted && reason != "" {
		if err := e.annotateReason(ctx, operation, objects, key, reason, allowed); err != nil {
			return err
		}
		isAnnounced = true
	}
	ended, err := e.end(ctx, operation, objects, key.ObjectName(), "", allowed)
	if err == nil {
		e.recordForcedRelease(ended, lock.UserFrom(ctx), reason)
		e.recordGone(ended.lock)
		e.log.Info("Force-released a Lock", "namespace", namespace, "lock", key.ObjectName(), "holder", ended.lock.Spec.Holder, "reason", reason)
	}
	return err
}

// annotateReason writes the reason on the lock. Admission requires it before it lets a user delete
// another holder's lock. The annotation changes nothing for the holder.
func (e *Engine) annotateReason(ctx context.Context, operation string, objects Objects, key v1alpha1.FullKey, reason string, allowed func(*v1alpha1.Lock) error) error {
	backoff := newBackoff()
	for {
		current, err := get(ctx, objects, key.ObjectName())
		if err != nil {
			return e.requestError(operation, err)
		}
		if err := allowed(current); err != nil {
			return err
		}
		next := current.DeepCopy()
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, v1alpha1.ForceReleaseReasonAnnotation, reason)
		_, err = objects.Update(ctx, next, metav1.UpdateOptions{})
		switch {
		case err == nil:
			return nil
		case !refusal.IsConflict(err) && !refusal.IsNotFound(err):
			return e.requestError(operation, err, current.Spec.Owner)
		}
		if !e.pause(ctx, &backoff) {
			return fmt.Errorf("%s: %w: %w", operation, lock.ErrUnavailable, refusal.WithoutOwners(err, current.Spec.Owner))
		}
	}
}
