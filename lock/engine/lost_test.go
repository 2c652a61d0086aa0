package engine_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/engine/digest"
	"forrst.dev/lock-operator/lock/rules"
)

// lossy serves lists and watches of the locks of an etcd. It can lose the deletes in its watches.
type lossy struct {
	etcd         *etcd
	losesDeletes atomic.Bool
	lists        atomic.Int32

	mu       sync.Mutex
	log      []watch.Event
	watchers []*watch.RaceFreeFakeWatcher
}

func newLossy(t *testing.T, etcd *etcd) *lossy {
	t.Helper()
	l := &lossy{etcd: etcd}
	_, err := etcd.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, object any) { l.tell(watch.Modified, object) },
		DeleteFunc: func(object any) { l.tell(watch.Deleted, object) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lossy) tell(kind watch.EventType, object any) {
	told, ok := object.(*v1alpha1.Lock)
	if !ok || kind == watch.Deleted && l.losesDeletes.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log = append(l.log, watch.Event{Type: kind, Object: told})
	for _, watcher := range l.watchers {
		watcher.Action(kind, told.DeepCopy())
	}
}

// List implements [cache.Lister].
func (l *lossy) List(metav1.ListOptions) (runtime.Object, error) {
	l.lists.Add(1)
	l.etcd.mu.Lock()
	defer l.etcd.mu.Unlock()
	list := &v1alpha1.LockList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(l.etcd.revision)}}
	for _, object := range l.etcd.objects {
		list.Items = append(list.Items, *object.DeepCopy())
	}
	return list, nil
}

// Watch implements [cache.Watcher].
func (l *lossy) Watch(options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil {
		return nil, apierrors.NewBadRequest("lists are not streamed")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	watcher := watch.NewRaceFreeFake()
	for _, event := range l.log {
		if told, ok := event.Object.(*v1alpha1.Lock); ok && rules.IsNewer(told.ResourceVersion, options.ResourceVersion) {
			watcher.Action(event.Type, told.DeepCopy())
		}
	}
	l.watchers = append(l.watchers, watcher)
	return watcher, nil
}

// watching is a replica with an informer.
type watching struct {
	*engine.Engine

	from   *lossy
	stream *engine.WatchStream
}

func newWatching(t *testing.T, etcd *etcd) watching {
	t.Helper()
	etcd.mu.Lock()
	etcd.revision = max(etcd.revision, 1) // That of an API server is never zero.
	etcd.mu.Unlock()
	w := watching{from: newLossy(t, etcd), stream: engine.NewWatchStream(clock.RealClock{}, logr.Discard())}
	informer := w.stream.NewInformer(w.from, &v1alpha1.Lock{}, 0, nil)
	w.Engine = startWith(t, engine.Options{
		Objects: etcd.locks, Limits: rules.DefaultLimits(), Informer: informer, Stream: w.stream,
		MaxWatchSilence: engine.DefaultMaxWatchSilence, HeartbeatNamespace: heartbeatNamespace,
	})
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	running.Go(func() { informer.RunWithContext(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return w
}

// beats renews the heartbeat each period, with what the replica was shown, until the test ends.
func (w watching) beats(t *testing.T) {
	t.Helper()
	etcd := w.from.etcd
	beat := time.NewTicker(engine.HeartbeatPeriod)
	ctx := t.Context()
	go func() {
		defer beat.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-beat.C:
			}
			renewed := v1alpha1.NewTimestamp(time.Now())
			heartbeat := &v1alpha1.Lock{Spec: v1alpha1.LockSpec{RenewTime: &renewed}, ObjectMeta: metav1.ObjectMeta{
				Namespace: heartbeatNamespace, Name: "lock-operator--heartbeat", UID: "heartbeat",
				Annotations: map[string]string{v1alpha1.DigestAnnotation: w.stream.Digest()},
			}}
			etcd.mu.Lock()
			etcd.store(heartbeat)
			etcd.mu.Unlock()
		}
	}()
}

func TestAWaiterIsServedSoonAfterALiveWatchHasLostTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		healthy, other := newWatching(t, etcd), newWatching(t, etcd)
		healthy.beats(t)
		pass(5 * time.Second)
		held := by("holder")
		held.TTL = time.Hour
		acquire(t, healthy.Engine, held)
		answers := make(chan answer, 1)
		queueUp(t.Context(), t, other.Engine, waiting("waiter", time.Hour), answers)
		pass(5 * time.Second)
		etcd.made()
		pass(40 * time.Second)
		if made := etcd.made(); len(made) > 0 {
			t.Errorf("requests %v while all is well", made)
		}
		other.from.losesDeletes.Store(true)
		release(t, healthy.Engine, "holder")
		released := time.Now()
		other.from.losesDeletes.Store(false)
		got := <-answers
		if served := time.Since(released); got.err != nil || served > 1200*time.Millisecond {
			t.Errorf("served after %v, %v", served, got.err)
		}
	})
}

func TestAnInformerThatHasLostAChangeListsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		healthy, other := newWatching(t, etcd), newWatching(t, etcd)
		healthy.beats(t)
		pass(5 * time.Second)
		acquire(t, healthy.Engine, by("holder"))
		changes, err := other.Watch(t.Context(), "default", fullKey())
		if err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		<-changes
		other.from.losesDeletes.Store(true)
		release(t, healthy.Engine, "holder")
		other.from.losesDeletes.Store(false)
		pass(5 * time.Second)
		select {
		case change := <-changes:
			if !change.IsGone {
				t.Errorf("got %+v", change)
			}
		default:
			t.Error("the informer has not found out")
		}
		lists, differed := other.from.lists.Load(), other.WatchState().Differing
		if lists != 2 || differed != 2 {
			t.Errorf("%d lists after %d heartbeats that differed, want 2 and 2", lists, differed)
		}
		if lists := healthy.from.lists.Load(); lists != 1 {
			t.Errorf("the healthy replica listed %d times", lists)
		}
		pass(time.Minute)
		if again := other.WatchState().Differing; again != differed || other.from.lists.Load() != 2 {
			t.Errorf("%d heartbeats differ after the list", again-differed)
		}
	})
}

// Otherwise the other replica would not learn that it may be the one that has lost a change.
func TestAReplicaSaysWhatItWasShownBeforeItListsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		healthy, other := newWatching(t, etcd), newWatching(t, etcd)
		healthy.beats(t)
		pass(5300 * time.Millisecond)
		acquire(t, healthy.Engine, by("holder"))
		other.from.losesDeletes.Store(true)
		release(t, healthy.Engine, "holder")
		other.from.losesDeletes.Store(false)
		pass(1800 * time.Millisecond) // until two heartbeats have differed
		etcd.mu.Lock()
		heartbeat := etcd.objects["lock-operator--heartbeat"].DeepCopy()
		etcd.mu.Unlock()
		if verdict := other.stream.Compare(heartbeat); verdict != digest.Differs {
			t.Errorf("verdict %d", verdict)
		}
		if first, second := other.stream.Digest(), other.stream.Digest(); first == "" || second != "" {
			t.Errorf("says %q and %q while it lists", first, second)
		}
		pass(10 * time.Second)
		heartbeat.Annotations, heartbeat.ResourceVersion = nil, "1000"
		if verdict := other.stream.Compare(heartbeat); verdict != digest.Lags {
			t.Errorf("verdict %d on a replica that says nothing", verdict)
		}
	})
}

// The lost change may not be that of a lock that is waited for, and there may be many that are.
func TestALossCostsOneReadOfEachLockThatIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		healthy, other := newWatching(t, etcd), newWatching(t, etcd)
		healthy.beats(t)
		pass(5 * time.Second)
		const queues = 50
		ctx, cancel := context.WithCancel(t.Context())
		answers := make(chan answer, queues)
		for i := range queues {
			held, wanted := by("holder"), waiting("waiter", time.Hour)
			held.Key, wanted.Key = strconv.Itoa(i), strconv.Itoa(i)
			held.TTL = time.Hour
			acquire(t, healthy.Engine, held)
			queueUp(ctx, t, other.Engine, wanted, answers)
		}
		acquire(t, healthy.Engine, by("holder"))
		pass(2300 * time.Millisecond) // between two heartbeats
		etcd.made()
		other.from.losesDeletes.Store(true)
		release(t, healthy.Engine, "holder")
		other.from.losesDeletes.Store(false)
		pass(900 * time.Millisecond)
		made := etcd.made()
		gets := len(slices.DeleteFunc(slices.Clone(made), func(verb string) bool { return verb != "get" }))
		if gets != queues {
			t.Errorf("%d reads, want %d", gets, queues)
		}
		cancel()
	})
}

func fullKey() v1alpha1.FullKey {
	request := by("holder")
	return request.FullKey()
}
