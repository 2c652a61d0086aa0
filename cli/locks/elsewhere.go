package locks

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// HeldElsewhere returns the other namespaces in which the key of a lock is held: the namespace may have been
// left out. None are known to a user who may not list locks in all namespaces.
func HeldElsewhere(ctx context.Context, reader client.Reader, lock ID, now time.Time) (namespaces []string, err error) {
	var found v1alpha1.LockList
	err = reader.List(ctx, &found, &client.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", lock.Key.ObjectName()),
		Raw:           &metav1.ListOptions{ResourceVersion: "0"}, // From the cache: a hint is not worth a scan of all locks.
	})
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	for index := range found.Items {
		if row := RowOf(&found.Items[index]); row.Key == lock.Key && row.Namespace != lock.Namespace && row.IsHeld(now) {
			namespaces = append(namespaces, row.Namespace)
		}
	}
	slices.Sort(namespaces)
	return namespaces, err
}
