package reaper

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/refusal"
	"forrst.dev/lock-operator/lock/removal"
)

const (
	// concurrency is the number of simultaneous deletes. Each waits for one etcd commit, and
	// etcd commits concurrent writes together.
	concurrency = 16
	// timeout bounds one reconcile.
	timeout = 10 * time.Second
	// MaxBackoff bounds the delay before a failed request is repeated. The default of
	// controller-runtime, 16 minutes, would outlast most outages.
	MaxBackoff = 5 * time.Second
	// openFor is how long a delete that was not answered may still happen. The API server works on
	// a request for a minute after its client has given up.
	openFor = time.Minute
)

// ControllerOptions returns the options of a controller that deletes locks and runs on
// every replica, whether or not the replica leads.
func ControllerOptions() controller.Options {
	return controller.Options{
		NeedLeaderElection:      new(false),
		MaxConcurrentReconciles: concurrency,
		ReconciliationTimeout:   timeout,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](10*time.Millisecond, MaxBackoff),
	}
}

// Reaper deletes locks and remembers for a minute the deletes that failed although they may have
// happened, at most one for each name. Its zero value is ready for use. Safe for concurrent use
// with different names.
type Reaper struct {
	mu   sync.Mutex
	open map[types.NamespacedName]openDelete
}

// openDelete is a delete that may or may not have happened.
type openDelete struct {
	lock  *v1alpha1.Lock
	since time.Time
}

// Delete deletes the lock on condition that it still has the UID and resourceVersion of
// the given object, and reports whether it did. A lock that has changed or is gone is
// not an error. After an error that leaves open whether the lock was deleted,
// [Reaper.Resolve] finds out.
func (r *Reaper) Delete(ctx context.Context, writer client.Writer, lock *v1alpha1.Lock, now time.Time) (isDeleted bool, err error) {
	err = removal.Remove(ctx, writer, lock)
	switch {
	case err == nil:
		r.take(client.ObjectKeyFromObject(lock)) // An earlier delete did not happen.
		return true, nil
	case HasChanged(err):
		return false, nil
	case engine.MayHaveHappened(err):
		r.put(openDelete{lock: lock, since: now})
	}
	return false, err
}

// Resolve returns the lock of the name whose delete was left open, once the cache shows
// that it is gone, or nil. It reads the cache only if there is such a delete.
func (r *Reaper) Resolve(ctx context.Context, cache client.Reader, name types.NamespacedName, now time.Time) (*v1alpha1.Lock, error) {
	tried := r.take(name)
	if tried.lock == nil {
		return nil, nil // nothing was left open
	}
	var current v1alpha1.Lock
	err := client.IgnoreNotFound(cache.Get(ctx, name, &current)) // A missing lock has no UID.
	switch {
	case err != nil, tried.lock.UID == current.UID && tried.lock.ResourceVersion == current.ResourceVersion:
		if now.Sub(tried.since) < openFor {
			r.put(tried)
		}
		return nil, err
	case tried.lock.UID == current.UID:
		return nil, nil // the lock has changed instead
	}
	return tried.lock, nil
}

// RecheckAfter returns when a replica that does not lead is to look at the name again, because a
// delete of its own was left open; zero if none was. Another replica may never touch the lock, and
// no event would tell this one to forget it.
func (r *Reaper) RecheckAfter(name types.NamespacedName) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, isOpen := r.open[name]; isOpen {
		return MaxBackoff
	}
	return 0
}

func (r *Reaper) put(tried openDelete) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil {
		r.open = map[types.NamespacedName]openDelete{}
	}
	r.open[client.ObjectKeyFromObject(tried.lock)] = tried
}

func (r *Reaper) take(name types.NamespacedName) openDelete {
	r.mu.Lock()
	defer r.mu.Unlock()
	tried := r.open[name]
	delete(r.open, name)
	return tried
}

// HasChanged reports whether a conditional write failed because the object has changed or is gone. A
// write that a policy or a webhook refuses, with whatever code, leaves the object as it was.
func HasChanged(err error) bool {
	return refusal.IsConflict(err) || refusal.IsNotFound(err)
}
