package webhook

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// makeWay deletes an expired lock whose name is about to be taken, so that the
// create reaches etcd, where one of the racers wins. The error is a
// [*rules.HeldError] if the lock is held.
//
// Only a cache that knows the name leads to a request: a cache that is behind can
// neither refuse a free lock nor let a held one be taken.
func (a *LockAdmission) makeWay(ctx context.Context, name client.ObjectKey, dryRun bool) error {
	var namesake v1alpha1.Lock
	if err := a.Client.Get(ctx, name, &namesake); err != nil {
		return ignoreNotFound("look up the lock", err)
	}
	if err := a.LiveReader.Get(ctx, name, &namesake); err != nil {
		return ignoreNotFound("read the lock", err)
	}
	if err := rules.Reclaim(&namesake, a.Clock.Now(), a.grace()); err != nil {
		return err
	}
	if dryRun {
		return nil
	}
	err := a.Client.Delete(ctx, &namesake, client.Preconditions{UID: &namesake.UID, ResourceVersion: &namesake.ResourceVersion})
	if err == nil {
		a.Audit.madeWay(&namesake)
	}
	if apierrors.IsConflict(err) {
		// Somebody moved first; etcd will find the name taken or free.
		return nil
	}
	return ignoreNotFound("delete the expired lock", err)
}

func ignoreNotFound(action string, err error) error {
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", action, err)
}
