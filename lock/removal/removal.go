// Package removal ends Lock objects that have expired or whose holder has ended.
package removal

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/refusal"
)

// Remove ends the lock on condition that it still has the UID and resourceVersion of the given
// object, which must be whole. The lock is gone when Remove succeeds, whatever kept it: a delete in
// the foreground with a dependent that does not end, or a finalizer that got past admission. No
// error shows the owner token.
func Remove(ctx context.Context, writer client.Writer, lock *v1alpha1.Lock) error {
	return refusal.WithoutOwners(remove(ctx, writer, lock), lock.Spec.Owner)
}

func remove(ctx context.Context, writer client.Writer, lock *v1alpha1.Lock) error {
	version := lock.ResourceVersion
	if len(lock.Finalizers) > 0 {
		// Not by a delete in the background: the API server answers it with a Conflict if it has a
		// resourceVersion and the only finalizers are the garbage collector's.
		next := lock.DeepCopy()
		next.Finalizers = nil
		if err := writer.Update(ctx, next); err != nil || !lock.DeletionTimestamp.IsZero() {
			return err
		}
		version = next.ResourceVersion
	}
	return writer.Delete(ctx, lock, client.Preconditions{UID: &lock.UID, ResourceVersion: &version},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
}
