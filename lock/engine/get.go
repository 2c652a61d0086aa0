package engine

import (
	"context"
	"fmt"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// Get returns the lock as stored in etcd. The answer may be out of date when it arrives; it does
// not protect a write.
//
// The error matches [lock.ErrNotHeld], also from expireTime on, or [lock.ErrUnavailable].
func (e *Engine) Get(ctx context.Context, namespace string, key v1alpha1.FullKey) (*v1alpha1.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	current, err := get(ctx, e.objects(namespace), key.ObjectName())
	if err != nil {
		return nil, e.requestError(fmt.Sprintf("get %s in namespace %s", key, namespace), err)
	}
	if current == nil || rules.Expired(current, e.clock.Now()) {
		return nil, lock.ErrNotHeld
	}
	return current, nil
}
