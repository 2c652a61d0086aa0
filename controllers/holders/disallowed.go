package holders

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// disallowed remembers which locks have been logged that are held for an object of a kind that locks may
// not be held for: they were acquired under another configuration or version. Safe for concurrent use.
type disallowed struct {
	mu     sync.Mutex
	logged map[types.NamespacedName]types.UID
}

// log logs a lock once, however often it is renewed.
func (d *disallowed) log(ctx context.Context, lock *v1alpha1.Lock) {
	if !d.add(types.NamespacedName{Namespace: lock.Namespace, Name: lock.Name}, lock.UID) {
		return
	}
	logf.FromContext(ctx).Info("Lock is held for an object of a kind that is not allowed, and does not end with it",
		"lock", klog.KObj(lock), "key", string(lock.Spec.FullKey()), "kind", lock.Spec.HolderRef.Kind, "apiVersion", lock.Spec.HolderRef.APIVersion)
}

// add reports whether the lock was not remembered yet.
func (d *disallowed) add(name types.NamespacedName, uid types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.logged[name] == uid {
		return false
	}
	if d.logged == nil {
		d.logged = map[types.NamespacedName]types.UID{}
	}
	d.logged[name] = uid
	return true
}

// forget forgets a lock that is gone, or is held for an object of another kind.
func (d *disallowed) forget(name types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.logged, name)
}
