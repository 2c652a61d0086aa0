package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/engine/keywatch"
	"forrst.dev/lock-operator/lock/rules"
)

// objectWatch is a watch of one lock.
type objectWatch struct {
	name   string
	events chan watch.Event
	// stopped ends with the watch.
	stopped context.Context // the lifetime of the watch
	stop    context.CancelFunc
}

func (w *objectWatch) ResultChan() <-chan watch.Event { return w.events }

func (w *objectWatch) Stop() { w.stop() }

func (w *objectWatch) OnAdd(object any, _ bool) { w.send(watch.Added, object) }

func (w *objectWatch) OnUpdate(_, object any) { w.send(watch.Modified, object) }

func (w *objectWatch) OnDelete(object any) { w.send(watch.Deleted, object) }

func (w *objectWatch) send(change watch.EventType, object any) {
	shown, _ := object.(*v1alpha1.Lock)
	if w.stopped.Err() == nil && w.name == shown.Name {
		w.events <- watch.Event{Type: change, Object: shown}
	}
}

// open is that of [keywatch.Options], for an API server that does not stream lists.
func (e *etcd) open(name types.NamespacedName) (cache.ListerWatcher, func()) {
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			list := &v1alpha1.LockList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(max(1, e.revision))}}
			for _, object := range e.objects {
				if name.Name == object.Name {
					list.Items = append(list.Items, *object.DeepCopy())
				}
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			switch {
			case options.SendInitialEvents != nil:
				return nil, apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("Lock").GroupKind(), "", nil)
			case options.ResourceVersion != strconv.Itoa(max(1, e.revision)):
				return nil, apierrors.NewResourceExpired("test")
			}
			opened := &objectWatch{name: name.Name, events: make(chan watch.Event, 1000)}
			opened.stopped, opened.stop = context.WithCancel(ctx)
			e.handlers = append(e.handlers, opened)
			return opened, nil
		},
	}, func() {}
}

// startWatching starts an engine that watches the locks in use alone, and returns turns of two programs' callers after
// the first hand-off.
func startWatching(t *testing.T) *turns {
	t.Helper()
	etcd := newEtcd()
	informer := keywatch.New(keywatch.Options{Open: etcd.open, Clock: clock.RealClock{}})
	begun := &turns{etcd: etcd, answers: make(chan answer, 100), holder: "a", next: "b"}
	begun.engine = startWith(t, engine.Options{
		Objects: etcd.locks, Limits: rules.DefaultLimits(), Informer: informer, Stream: engine.NewTestStream(t).WatchStream,
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		informer.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	acquire(t, begun.engine, keeping("a", "billing:report"))
	queueUp(t.Context(), t, begun.engine, keeping("b", "billing:report"), begun.answers)
	release(t, begun.engine, "a")
	begun.await(t)
	etcd.made()
	return begun
}

// keeping is a request of a caller that keeps the lock for long.
func keeping(owner, key string) lock.Request {
	request := waiting(owner, time.Hour)
	request.Key, request.TTL = key, 10*time.Minute
	return request
}

// turnAfter ends the turn of the holder, for which the next caller has waited for a moment.
func (o *turns) turnAfter(t *testing.T, use time.Duration) {
	t.Helper()
	pass(use)
	queueUp(t.Context(), t, o.engine, keeping(o.next, "billing:report"), o.answers)
	pass(time.Second)
	release(t, o.engine, o.holder)
	o.await(t)
}

// The informer forgets the lock in each turn.
func TestTurnsThatAreLongerThanAWatchEndTheirSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taking := startWatching(t)
		for range 2 {
			taking.turnAfter(t, keywatch.KeepFor+10*time.Second)
		}
		if made := taking.etcd.made(); !slices.Contains(made, "delete") {
			t.Errorf("no engine but this one had a chance: %v", made)
		}
	})
}

// The informer forgets the lock for the sake of others that are in use.
func TestTurnsOfALockAmongManyEndTheirSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taking := startWatching(t)
		for number := range keywatch.MaxNames {
			other := fmt.Sprint("billing:other", number)
			acquire(t, taking.engine, keeping("holder", other))
			queueUp(t.Context(), t, taking.engine, keeping("waiter", other), make(chan answer, 1))
		}
		taking.etcd.made()
		taking.turnAfter(t, 11*time.Second)
		if made := taking.etcd.made(); !slices.Contains(made, "delete") {
			t.Errorf("no engine but this one had a chance: %v", made)
		}
	})
}
