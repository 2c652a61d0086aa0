package engine

import (
	"context"
	"errors"
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
	// Announced is the lock as it was when the reason was written on it, or nil. Then it ends whatever becomes of the caller:
	// the reason must not stay on a lock that goes on.
	var found, announced *v1alpha1.Lock
	allowed := func(current *v1alpha1.Lock) error {
		if err := caller.Err(); err != nil && announced == nil {
			return err
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
		const annotation = v1alpha1.ForceReleaseReasonAnnotation
		if announced != nil && current.Annotations[annotation] != announced.Annotations[annotation] {
			return errOtherReason
		}
		return nil
	}
	ctx, cancel := e.detached(ctx)
	defer cancel()
	objects := e.objects(namespace)
	for backoff := newBackoff(); ; {
		if e.isAdmitted && reason != "" {
			var err error
			if announced, err = e.annotateReason(ctx, operation, objects, key, reason, allowed); err != nil {
				return err
			}
		}
		ended, err := e.end(ctx, operation, objects, key.ObjectName(), "", allowed)
		if errors.Is(err, errOtherReason) && e.pause(ctx, &backoff) {
			announced = nil
			continue
		}
		if err == nil {
			e.recordForcedRelease(ended, lock.UserFrom(ctx), reason)
			e.recordGone(ended.lock)
			e.log.Info("Force-released a Lock", "namespace", namespace, "lock", key.ObjectName(), "holder", ended.lock.Spec.Holder, "reason", reason)
		}
		return err
	}
}

// errOtherReason means that another forced release has replaced the reason on the lock, which the audit would record.
var errOtherReason = fmt.Errorf("%w: another reason was written on the lock", lock.ErrUnavailable)

// annotateReason writes the reason on the lock, and returns it as stored. Admission requires it before it lets a user delete
// another holder's lock, and leaves it out on a lock of the user's own. The annotation changes nothing for the holder.
func (e *Engine) annotateReason(ctx context.Context, operation string, objects Objects, key v1alpha1.FullKey, reason string, allowed func(*v1alpha1.Lock) error) (*v1alpha1.Lock, error) {
	backoff := newBackoff()
	for {
		current, err := get(ctx, objects, key.ObjectName())
		if err != nil {
			return nil, e.requestError(operation, err)
		}
		if err := allowed(current); err != nil {
			return nil, fmt.Errorf("%s: %w", operation, err)
		}
		next := current.DeepCopy()
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, v1alpha1.ForceReleaseReasonAnnotation, reason)
		stored, err := objects.Update(ctx, next, metav1.UpdateOptions{})
		switch {
		case err == nil:
			return stored, nil
		case !refusal.IsConflict(err) && !refusal.IsNotFound(err):
			return nil, e.requestError(operation, err, current.Spec.Owner)
		}
		if !e.pause(ctx, &backoff) {
			return nil, fmt.Errorf("%s: %w: %w", operation, lock.ErrUnavailable, refusal.WithoutOwners(err, current.Spec.Owner))
		}
	}
}
