package renewal

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// over remembers of which locks it was told that their renewals are over: each is looked at again, also when
// another user changes it. Its zero value is ready for use. Safe for concurrent use.
type over struct {
	mu   sync.Mutex
	told map[types.NamespacedName]types.UID
}

// isNew reports whether it is yet to be told of the lock, and records that it was.
func (o *over) isNew(lock *v1alpha1.Lock) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	name := client.ObjectKeyFromObject(lock)
	if uid, isTold := o.told[name]; isTold && uid == lock.UID {
		return false
	}
	if o.told == nil {
		o.told = map[types.NamespacedName]types.UID{}
	}
	o.told[name] = lock.UID
	return true
}

// forget is for a lock that is gone or renewed again.
func (o *over) forget(name types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.told, name)
}
