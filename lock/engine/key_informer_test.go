package engine_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/engine/keywatch"
	"forrst.dev/lock-operator/lock/rules"
)

// keyInformer records what an engine uses.
type keyInformer struct {
	*etcd

	handler keywatch.Handler
	mu      sync.Mutex
	uses    []string
}

func (i *keyInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.handler, _ = handler.(keywatch.Handler)
	return i.etcd.AddEventHandler(handler)
}

func (i *keyInformer) Use(name types.NamespacedName, known *v1alpha1.Lock, mayBeBrief bool) func() {
	use := name.String()
	if known != nil {
		use += " known at " + known.ResourceVersion
	}
	if mayBeBrief {
		use += " perhaps briefly"
	}
	i.note("use " + use)
	return func() { i.note("release " + name.String()) }
}

func (i *keyInformer) note(what string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.uses = append(i.uses, what)
}

func (i *keyInformer) must(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	i.mu.Lock()
	defer i.mu.Unlock()
	if diff := cmp.Diff(want, i.uses); diff != "" {
		t.Errorf("uses (-want +got):\n%s", diff)
	}
	i.uses = nil
}

// startWithKeys starts an engine whose informer reports the locks in use, and another engine.
func startWithKeys(t *testing.T) (informer *keyInformer, direct, other *engine.Engine) {
	t.Helper()
	informer = &keyInformer{etcd: newEtcd()}
	direct = startWith(t, engine.Options{
		Objects: informer.locks, Limits: rules.DefaultLimits(),
		Informer: informer, Stream: engine.NewTestStream(t).WatchStream,
	})
	return informer, direct, start(t, informer.etcd)
}

func TestAnUncontendedAcquireUsesNoWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		informer, direct, _ := startWithKeys(t)
		acquire(t, direct, waiting("a", time.Minute))
		release(t, direct, "a")
		informer.must(t)
	})
}

func TestAWaiterUsesTheWatchOfItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		informer, direct, other := startWithKeys(t)
		acquire(t, other, by("holder"))
		answers := make(chan answer, 2)
		queueUp(t.Context(), t, direct, waiting("a", time.Hour), answers)
		queueUp(t.Context(), t, direct, waiting("b", time.Hour), answers)
		informer.must(t, "use default/"+name+" known at 1")
		release(t, other, "holder")
		release(t, direct, (<-answers).owner)
		last := <-answers
		informer.must(t, "release default/"+name)
		release(t, direct, last.owner)
		informer.must(t)
	})
}

func TestAWatchOfALockIsUsedUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		informer, direct, other := startWithKeys(t)
		watch := func() (<-chan lock.Change, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			changes, err := direct.Watch(ctx, "default", key)
			if err != nil {
				t.Fatal(err)
			}
			return changes, cancel
		}
		changes, cancel := watch()
		informer.must(t, "use default/"+name+" perhaps briefly")
		select {
		case change := <-changes:
			t.Errorf("got %+v before the informer has shown the lock", change)
		default:
		}
		informer.handler.OnAbsent(types.NamespacedName{Namespace: "default", Name: name})
		if change := <-changes; change.Lock != nil || !change.IsGone {
			t.Errorf("got %+v of a lock that does not exist", change)
		}
		acquire(t, other, by("other"))
		if change := <-changes; change.IsGone || change.Lock.Spec.Owner != "other" {
			t.Errorf("got %+v", change)
		}
		cancel()
		informer.must(t, "release default/"+name)
		release(t, other, "other")

		acquire(t, direct, by("a"))
		_, cancel = watch()
		defer cancel()
		informer.must(t, "use default/"+name+" known at 3 perhaps briefly")
	})
}

func TestALockThatIsNoLongerWatchedIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		informer, direct, other := startWithKeys(t)
		acquire(t, other, by("holder"))
		answers := queued(t, direct, waiting("a", time.Hour))
		pass(10 * time.Second)
		informer.mute(true)
		informer.handler.OnForget(types.NamespacedName{Namespace: "default", Name: name})
		begun := time.Now()
		release(t, other, "holder")
		if got := <-answers; got.err != nil || time.Since(begun) > time.Second {
			t.Errorf("got %+v after %v", got, time.Since(begun))
		}
		synctest.Wait()
		informer.handler.OnForget(types.NamespacedName{Namespace: "default", Name: name}) // No one waits any more.
		// The cache has nothing that would be out of date by now.
		changes, err := direct.Watch(t.Context(), "default", key)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case change := <-changes:
			t.Errorf("got %+v of a lock that is not watched", change)
		default:
		}
	})
}
