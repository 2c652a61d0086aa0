package expiry

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/lock/rules"
)

func kept(key string, ttl time.Duration, at time.Time) *v1alpha1.Lock {
	return rules.Grant("a", rules.Acquisition{Key: key, Owner: "o", Holder: "alice", TTL: ttl}, rules.DefaultLimits(), at)
}

// cluster is the cache that a sweep reads, and records what it enqueues.
type cluster struct {
	leadership.Queue

	mu    sync.Mutex
	locks []*v1alpha1.Lock
	names []string
}

func (c *cluster) Add(request reconcile.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names = append(c.names, request.Name)
}

func (c *cluster) all() []*v1alpha1.Lock {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.locks
}

func (c *cluster) enqueued() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.names)
}

func (c *cluster) show(locks ...*v1alpha1.Lock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.locks = locks
}

// A lock is in the queue in time, though no event tells that its end has come near.
func TestASweepFindsALockBeforeItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, shown := time.Now(), &cluster{}
		long := kept("long", 5*time.Minute, start)
		shown.show(kept("brief", time.Second, start), long)
		reconciler := &Reconciler{
			Clock: clock.RealClock{}, ClockSkewAllowance: time.Second, Leadership: leadership.Always(),
			all: shown.all,
		}
		ctx, cancel := context.WithCancel(t.Context())
		go reconciler.sweep(ctx, clock.RealClock{}, shown)
		synctest.Wait()
		if found := shown.enqueued(); !slices.Equal(found, []string{"brief"}) {
			t.Fatalf("at first %v are enqueued", found)
		}
		shown.show(long)
		for len(shown.enqueued()) == 1 && time.Since(start) < 5*time.Minute {
			<-time.After(time.Second) // of the bubble
			synctest.Wait()
		}
		found, left := shown.enqueued(), 5*time.Minute-time.Since(start)
		if found[len(found)-1] != "long" || left < sweepPeriod {
			t.Errorf("%v are enqueued %s before the end of the last", found, left)
		}
		cancel()
		synctest.Wait()
	})
}
