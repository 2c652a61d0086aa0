package reaper

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

const (
	// Concurrency is how many deletes may be under way at once. Each waits for one
	// etcd commit, and etcd commits concurrent writes together.
	Concurrency = 16
	// Timeout bounds one delete.
	Timeout = 10 * time.Second
	// MaxBackoff is how long a delete that failed waits at most. The default of
	// controller-runtime, 16 minutes, would outlast most outages.
	MaxBackoff = 5 * time.Second
)

// Unanswered are locks whose deletion was tried and may have happened, one under
// each name at most. A failed deletion is tried again, which settles it. Its zero value is
// ready for use.
type Unanswered struct {
	mu    sync.Mutex
	locks map[types.NamespacedName]*v1alpha1.Lock
}

func (u *Unanswered) Put(expired *v1alpha1.Lock) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.locks == nil {
		u.locks = map[types.NamespacedName]*v1alpha1.Lock{}
	}
	u.locks[client.ObjectKeyFromObject(expired)] = expired
}

func (u *Unanswered) Take(name types.NamespacedName) *v1alpha1.Lock {
	u.mu.Lock()
	defer u.mu.Unlock()
	tried := u.locks[name]
	delete(u.locks, name)
	return tried
}
