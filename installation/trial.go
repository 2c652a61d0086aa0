package installation

import (
	"context"
	"fmt"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

const (
	// trialKey is that of the lock that a trial takes.
	trialKey = "lock-operator:trial"
	// trialTTL ends the lock of a trial that was interrupted. Another trial waits for it.
	trialTTL = 30 * time.Second
)

// Try takes a lock in the namespace, reads it and releases it. It returns the fencing token of the grant.
func Try(ctx context.Context, backend lock.Backend, namespace string) (int64, error) {
	key := v1alpha1.NewFullKey(v1alpha1.ScopeGlobal, "", trialKey)
	proof := lock.Proof{Owner: lock.NewOwner()}
	granted, err := backend.Acquire(ctx, namespace, lock.Request{
		Acquisition: rules.Acquisition{Key: trialKey, Owner: proof.Owner, TTL: trialTTL, Reason: "a trial of the installation"},
		Wait:        trialTTL,
	})
	if err != nil {
		return 0, fmt.Errorf("acquire: %w", err)
	}
	seen, err := backend.Get(ctx, namespace, key)
	if err != nil {
		return 0, fmt.Errorf("read: %w", err)
	}
	if seen.Spec.Holder != granted.Spec.Holder {
		return 0, fmt.Errorf("read: the lock of %q is held by %q", granted.Spec.Holder, seen.Spec.Holder)
	}
	if err := backend.Release(ctx, namespace, key, proof); err != nil {
		return 0, fmt.Errorf("release: %w", err)
	}
	return granted.FencingToken()
}
