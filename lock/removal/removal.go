// Package removal ends Lock objects that have expired or whose holder has ended.
package removal

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/refusal"
	"forrst.dev/lock-operator/lock/rules"
)

// Remove ends the lock on condition that it still has the UID and resourceVersion of the given
// object, which must be whole if it has finalizers, as those in caches are. The lock is gone when Remove succeeds, whatever kept it: a delete in
// the foreground with a dependent that does not end, or a finalizer that got past admission. No
// error shows the owner token.
func Remove(ctx context.Context, writer client.Writer, lock *v1alpha1.Lock) error {
	return refusal.WithoutOwners(remove(ctx, writer, lock), lock.Spec.Owner)
}

func remove(ctx context.Context, writer client.Writer, lock *v1alpha1.Lock) error {
	// As in lock/engine: the rule is shared, the requests are not. Those of this client return
	// nothing and change their argument, and an adapter would be longer than they are.
	version := lock.ResourceVersion
	next, err := rules.WithoutFinalizers(lock)
	if err != nil {
		return err
	}
	if next != nil {
		if err := writer.Update(ctx, next); err != nil || !lock.DeletionTimestamp.IsZero() {
			return err
		}
		version = next.ResourceVersion
	}
	return writer.Delete(ctx, lock, client.Preconditions{UID: &lock.UID, ResourceVersion: &version},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
}
