package testenv

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// RemoveLock deletes a lock that may be held by any caller, as an administrator does: with
// a reason. A lock that does not exist is no error.
func RemoveLock(ctx context.Context, admin client.Client, namespace, name string) error {
	lock := &v1alpha1.Lock{}
	if err := admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, lock); err != nil {
		return client.IgnoreNotFound(err)
	}
	metav1.SetMetaDataAnnotation(&lock.ObjectMeta, v1alpha1.ForceReleaseReasonAnnotation, "the test is over")
	if err := admin.Update(ctx, lock); err != nil {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(admin.Delete(ctx, lock))
}
