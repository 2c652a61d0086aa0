package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// An earlier release granted such keys.
func TestALockUnderAnInvisibleKeyIsOnlyKept(t *testing.T) {
	const invisible, fullKey = "deploy\u200b", v1alpha1.FullKey("lock:deploy\u200b")
	calls := map[string]func(context.Context, *engine.Engine) error{
		"renewed": func(ctx context.Context, locks *engine.Engine) error {
			_, err := locks.Renew(ctx, "default", fullKey, lock.Proof{Owner: "a"}, time.Hour)
			return err
		},
		"read": func(ctx context.Context, locks *engine.Engine) error {
			_, err := locks.Get(ctx, "default", fullKey)
			return err
		},
		"released": func(ctx context.Context, locks *engine.Engine) error {
			return locks.Release(ctx, "default", fullKey, lock.Proof{Owner: "a"})
		},
		"released by force": func(ctx context.Context, locks *engine.Engine) error {
			return locks.ForceRelease(ctx, "default", fullKey, "stuck")
		},
	}
	for name, call := range calls {
		bubbles(t, "is "+name, func(t *testing.T, etcd *etcd, locks *engine.Engine) {
			request := rules.Acquisition{Key: invisible, Owner: "a", Holder: "alice", TTL: time.Minute}
			if _, err := etcd.Create(t.Context(), rules.Grant("default", request, rules.DefaultLimits(), time.Now()), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := call(t.Context(), locks); err != nil {
				t.Error(err)
			}
			_, err := locks.Acquire(t.Context(), "default", lock.Request{Acquisition: request})
			if !errors.Is(err, lock.ErrInvalidKey) {
				t.Errorf("acquired: %v", err)
			}
		})
	}
}
