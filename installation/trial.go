package installation

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

const (
	// trialKey is that of the lock that a trial takes.
	trialKey = "lock-operator:trial"
	// trialWriteKey is that of the lock that a trial creates without storing it. It is never held.
	trialWriteKey = "lock-operator:trial:write"
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

// TryWrite has the API server judge a new Lock in the namespace without storing it. It fails if the API server does not reach the
// webhook, or does not ask it: the schema of Locks refuses what the webhook has not stamped.
func TryWrite(ctx context.Context, writer client.Writer, namespace string) error {
	written := &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.NewFullKey(v1alpha1.ScopeGlobal, "", trialWriteKey).ObjectName()},
		Spec: v1alpha1.LockSpec{
			Key: trialWriteKey, Owner: lock.NewOwner(), TTL: &v1alpha1.Duration{Duration: trialTTL}, Reason: "a trial of the installation",
		},
	}
	if err := writer.Create(ctx, written, client.DryRunAll); err != nil {
		return fmt.Errorf("create a Lock by server-side dry run: %w", err)
	}
	return nil
}
