package webhook

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/refusal"
	"forrst.dev/lock-operator/lock/removal"
	"forrst.dev/lock-operator/lock/rules"
)

// reclaim deletes an expired lock whose name is about to be created. The create then
// reaches etcd, where one of several concurrent creates succeeds. The error is a
// [*rules.HeldError] if the lock is held at the time, which is that of the stamps of the next grant.
//
// Only a cache that knows the name leads to a request: a cache that is behind can neither
// refuse a free lock nor let a held one be taken.
func (a *LockAdmission) reclaim(ctx context.Context, name client.ObjectKey, now time.Time, isDryRun bool) error {
	var existing v1alpha1.Lock
	if err := a.Client.Get(ctx, name, &existing); err != nil {
		return ignoreNotFound("look up the lock", err)
	}
	existing = v1alpha1.Lock{} // Decoding keeps the fields that an answer does not have.
	if err := a.LiveReader.Get(ctx, name, &existing); err != nil {
		return ignoreNotFound("read the lock", err)
	}
	if corrected := a.Clock.Now(); corrected.Before(now) { // The answer has corrected the clock.
		now = corrected
	}
	if err := rules.Reclaim(&existing, now, a.grace()); err != nil || isDryRun {
		return err
	}
	err := removal.Remove(ctx, a.Client, &existing)
	switch {
	case err == nil:
		a.Audit.reclaimed(&existing)
	case !refusal.IsConflict(err) && !refusal.IsNotFound(err):
		return fmt.Errorf("delete the expired lock: %w", err)
	}
	return nil // If another writer came first, the create shows whether the name is taken.
}

func ignoreNotFound(action string, err error) error {
	if err == nil || refusal.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", action, err)
}
