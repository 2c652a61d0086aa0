package webhook

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/webhook/rates"
)

const (
	// foreignChangeInterval is the mean interval of the changes to one lock, by all users but its holder, that
	// a replica admits, and foreignChangeBurst how many it admits at once. A renewal tries for 5 s, and each
	// try takes some ten milliseconds.
	foreignChangeInterval = time.Second
	foreignChangeBurst    = 5
	// maxForeignlyChanged locks are told apart at a time. A lock is remembered for the seconds that it takes
	// to have the whole burst again.
	maxForeignlyChanged = 10_000
)

// foreignChanges are the rates at which users may change locks that others hold; see
// [rules.Change.IsForeign]. Safe for concurrent use.
type foreignChanges struct {
	mu     sync.Mutex
	byLock *rates.Map[types.UID]
}

func newForeignChanges() *foreignChanges {
	return &foreignChanges{byLock: rates.NewMap[types.UID](maxForeignlyChanged, func() *rate.Limiter {
		return rate.NewLimiter(rate.Every(foreignChangeInterval), foreignChangeBurst)
	})}
}

// take counts a change to the lock, or refuses it for the moment. Nil refuses none.
func (f *foreignChanges) take(lock *v1alpha1.Lock, now time.Time) error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	uid := types.UID(audit.BoundedName(string(lock.UID))) // A review may be forged, and of any size.
	if f.byLock.Of(uid, now).AllowN(now, 1) {
		return nil
	}
	return apierrors.NewTooManyRequests(fmt.Sprintf(
		"%s is held by another user, and was changed too often: once per second is possible; try again later", lock.Spec.FullKey()), 1)
}
