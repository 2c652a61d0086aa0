package locks

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/similar"
)

// HeldNearby returns the keys like that of a lock, and held in its namespace: the key may have been mistyped. It looks
// at one page of locks. None are known to a user who may not list them.
func HeldNearby(ctx context.Context, reader client.Reader, lock ID, now time.Time) ([]string, error) {
	var found v1alpha1.LockList
	// A list of the API server's cache, by resourceVersion 0, would have no limit.
	err := reader.List(ctx, &found, client.InNamespace(lock.Namespace), client.Limit(PageSize))
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	keys := make([]string, 0, len(found.Items))
	for index := range found.Items {
		if row := RowOf(&found.Items[index]); row.IsHeld(now) {
			keys = append(keys, row.Key.Bare())
		}
	}
	return similar.To(lock.Key.Bare(), keys), err
}
