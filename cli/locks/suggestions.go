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
	"forrst.dev/lock-operator/cli/similar"
)

// HeldElsewhere returns the other namespaces in which the key of a lock is held: the namespace may have been
// left out. None are known to a user who may not list locks in all namespaces.
func HeldElsewhere(ctx context.Context, reader client.Reader, lock ID, now time.Time) (namespaces []string, err error) {
	rows, err := heldRows(ctx, reader, now, &client.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", lock.Key.ObjectName()),
		Raw:           &metav1.ListOptions{ResourceVersion: "0"}, // From the cache: a hint is not worth a scan of all locks.
	})
	for _, row := range rows {
		if row.Key == lock.Key && row.Namespace != lock.Namespace {
			namespaces = append(namespaces, row.Namespace)
		}
	}
	slices.Sort(namespaces)
	return namespaces, err
}

// HeldNearby returns similar keys that are held in the namespace of a lock: the key may have been mistyped. It
// looks at one page of locks. None are known to a user who may not list them.
func HeldNearby(ctx context.Context, reader client.Reader, lock ID, now time.Time) ([]string, error) {
	// A list from the API server's cache, by resourceVersion 0, would have no limit.
	rows, err := heldRows(ctx, reader, now, &client.ListOptions{Namespace: lock.Namespace, Limit: PageSize})
	keys := make([]string, 0, len(rows))
	for _, row := range rows {
		keys = append(keys, row.Key.Bare())
	}
	return similar.To(lock.Key.Bare(), keys), err
}

// heldRows returns the first page of the locks that are held; none for a user who may not list them.
func heldRows(ctx context.Context, reader client.Reader, now time.Time, options *client.ListOptions) (rows []Row, err error) {
	var found v1alpha1.LockList
	if err := reader.List(ctx, &found, options); err != nil {
		if apierrors.IsForbidden(err) {
			return nil, nil
		}
		return nil, err
	}
	for index := range found.Items {
		if row := RowOf(&found.Items[index]); row.IsHeld(now) {
			rows = append(rows, row)
		}
	}
	return rows, nil
}
