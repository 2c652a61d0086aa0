package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// badWatch is an informer that can be made to lose changes, or to show them late.
type badWatch struct {
	engine.Informer

	isSilent, losesDeletes atomic.Bool
	// lag is how late it shows changes, in nanoseconds.
	lag atomic.Int64
}

func (w *badWatch) show(change func()) {
	if lag := time.Duration(w.lag.Load()); lag > 0 {
		time.AfterFunc(lag, change)
		return
	}
	change()
}

// AddEventHandler implements [engine.Informer].
func (w *badWatch) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return w.Informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(old, object any) {
			if !w.isSilent.Load() {
				w.show(func() { handler.OnUpdate(old, object) })
			}
		},
		DeleteFunc: func(object any) {
			if !w.isSilent.Load() && !w.losesDeletes.Load() {
				w.show(func() { handler.OnDelete(object) })
			}
		},
	})
}

// behind is a replica with a watch of its own, and another replica whose watch is healthy.
type behind struct {
	etcd           *etcd
	watch          *badWatch
	stream         *engine.TestStream
	healthy, other *engine.Engine
}

func newBehind(t *testing.T, change func(*engine.Options)) *behind {
	t.Helper()
	etcd := newEtcd()
	b := &behind{etcd: etcd, watch: &badWatch{Informer: etcd}, stream: engine.NewTestStream(t), healthy: start(t, etcd)}
	options := engine.Options{
		Objects: etcd.locks, Limits: rules.DefaultLimits(),
		Informer: b.watch, Stream: b.stream.WatchStream, MaxWatchSilence: engine.DefaultMaxWatchSilence,
		HeartbeatNamespace: heartbeatNamespace,
	}
	if change != nil {
		change(&options)
	}
	b.other = startWith(t, options)
	pass(3 * time.Second) // the watch has proven itself alive
	return b
}

// waitBehind has a caller hold the lock through the healthy replica, and another wait through the
// other one for as long as it takes to be served without any request.
func (b *behind) waitBehind(t *testing.T, wait time.Duration) <-chan answer {
	t.Helper()
	held := by("holder")
	held.TTL = time.Hour
	acquire(t, b.healthy, held)
	answers := make(chan answer, 1)
	queueUp(t.Context(), t, b.other, waiting("waiter", wait), answers)
	synctest.Wait()
	b.etcd.made()
	return answers
}

func TestAWaiterIsServedAfterAReleaseThatItsWatchDoesNotShow(t *testing.T) {
	cases := map[string]struct {
		change func(*engine.Options)
		fail   func(*behind)
		// ahead is how long before the release the watch fails.
		ahead  time.Duration
		within time.Duration
	}{
		"the watch stalls at the release":     {fail: func(b *behind) { b.watch.isSilent.Store(true) }, within: 2 * time.Second},
		"the watch has been stalled for long": {fail: func(b *behind) { b.watch.isSilent.Store(true) }, ahead: 10 * time.Minute, within: 2 * time.Second},
		"the watch is closed at the release": {
			fail:   func(b *behind) { b.stream.Close(); b.watch.isSilent.Store(true) },
			within: time.Second,
		},
		"the watch has been closed for long": {
			fail:  func(b *behind) { b.stream.Close(); b.watch.isSilent.Store(true) },
			ahead: 10 * time.Minute, within: 2 * time.Second,
		},
		"the watch has been ten seconds late for long": {
			fail: func(b *behind) {
				b.watch.lag.Store(int64(10 * time.Second))
				pass(15 * time.Second) // The watch is silent at first, and opened anew for that.
				b.stream.Open()
			},
			ahead: 4 * time.Second, within: 2 * time.Second,
		},
		"one event is lost": {fail: func(b *behind) { b.watch.losesDeletes.Store(true) }, within: 60 * time.Second},
		"one event is lost, and nothing tells that the watch is alive": {
			change: func(o *engine.Options) { o.MaxWatchSilence = 0 },
			fail:   func(b *behind) { b.watch.losesDeletes.Store(true) }, within: 20 * time.Second,
		},
	}
	for title, test := range cases {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBehind(t, test.change)
				answers := b.waitBehind(t, time.Hour)
				test.fail(b)
				pass(test.ahead)
				release(t, b.healthy, "holder")
				released := time.Now()
				got := <-answers
				if served := time.Since(released); got.err != nil || served > test.within {
					t.Errorf("served after %v, %v; want it within %v", served, got.err, test.within)
				}
			})
		})
	}
}

func TestANewWaiterReadsWhatTheWatchMayHaveLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBehind(t, nil)
		acquire(t, b.healthy, by("holder"))
		b.watch.losesDeletes.Store(true)
		release(t, b.healthy, "holder")
		b.etcd.made()
		begun := time.Now()
		acquire(t, b.other, waiting("waiter", time.Hour))
		if waited := time.Since(begun); waited > 0 {
			t.Errorf("waited %v for a free lock", waited)
		}
		if made := b.etcd.made(); !slices.Equal(made, []string{"get", "create"}) {
			t.Errorf("requests %v", made)
		}
	})
}

func TestWaitingOnAHealthyWatchCostsOneReadPerQueueAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBehind(t, nil)
		acquire(t, b.healthy, by("holder"))
		b.etcd.made()
		answers := make(chan answer, 100)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 100 {
			queueUp(ctx, t, b.other, waiting(fmt.Sprint(i), time.Hour), answers)
		}
		// The API server ends each watch once in a while, and the informer opens the next.
		b.stream.Close()
		pass(50 * time.Millisecond)
		b.stream.Open()
		pass(25 * time.Second)
		if made := b.etcd.made(); !slices.Equal(made, []string{"get"}) {
			t.Errorf("100 waiters made the requests %v, want one read", made)
		}
		cancel()
	})
}

func TestRechecksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBehind(t, nil)
		const queues = 1000
		answers := make(chan answer, queues)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range queues {
			held, wanted := by("holder"), waiting("waiter", time.Hour)
			held.Key = fmt.Sprint(i)
			held.TTL = time.Hour
			wanted.Key = held.Key
			acquire(t, b.healthy, held)
			queueUp(ctx, t, b.other, wanted, answers)
		}
		pass(10 * time.Second) // each new queue reads once
		b.etcd.made()
		b.watch.isSilent.Store(true)
		pass(20 * time.Second)
		const least, most = 200 * (20 - 2 - 1), 200*20 + 1 // the first 2 s pass until it is noticed
		if made := len(b.etcd.made()); made < least || made > most {
			t.Errorf("%d reads in 20 s, want %d to %d", made, least, most)
		}
		cancel()
	})
}

// Each new queue for a held lock wants to read it. One caller that begins many must not use up the
// reads of the others.
func TestManyShortWaitsDoNotUseUpTheReadsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBehind(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var impatient sync.WaitGroup
		defer impatient.Wait()
		defer cancel()
		for _, key := range []string{"one", "other"} {
			held := by("holder")
			held.Key, held.TTL = key, time.Hour
			acquire(t, b.healthy, held)
			impatient.Go(func() {
				for ctx.Err() == nil {
					short := waiting("impatient", 2*time.Millisecond)
					short.Key = key
					_, _ = b.other.Acquire(ctx, "default", short) // It fails: that is the point.
					pass(time.Millisecond)                        // until the queue has ended
				}
			})
		}
		answers := b.waitBehind(t, time.Minute)
		pass(20 * time.Second)
		b.watch.isSilent.Store(true)
		release(t, b.healthy, "holder")
		released := time.Now()
		got := <-answers
		if served := time.Since(released); got.err != nil || served > 2*time.Second {
			t.Errorf("served after %v, %v", served, got.err)
		}
	})
}

func TestTheEndOfAWaitDoesNotClaimWhatIsUnknown(t *testing.T) {
	cases := map[string]struct {
		fail func(*behind)
		want error
	}{
		"reads fail": {func(b *behind) { b.etcd.inject(faults{before: always(errLostAnswer)}) }, lock.ErrUnavailable},
		"reads do not come back": {func(b *behind) {
			b.etcd.inject(faults{before: func(string) error { pass(5 * time.Second); return errLostAnswer }})
		}, lock.ErrUnavailable},
		"reads succeed": {func(*behind) {}, lock.ErrTimeout},
	}
	for title, test := range cases {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBehind(t, nil)
				answers := b.waitBehind(t, 6*time.Second)
				b.watch.isSilent.Store(true)
				test.fail(b)
				if got := <-answers; !errors.Is(got.err, test.want) {
					t.Errorf("got %v, want %v", got.err, test.want)
				}
				b.etcd.inject(faults{})
			})
		})
	}
}

func TestALockOfATenantIsNoHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		running := startWith(t, engine.Options{
			Objects: etcd.locks, Limits: rules.DefaultLimits(), Informer: etcd, Stream: engine.NewTestStream(t).WatchStream,
			MaxWatchSilence: engine.DefaultMaxWatchSilence, HeartbeatNamespace: heartbeatNamespace,
		})
		taken := by("tenant")
		taken.Key, taken.Scope = engine.HeartbeatKey, v1alpha1.ScopeGlobal
		if granted := acquire(t, running, taken); granted.Name != "lock-operator--heartbeat" {
			t.Fatalf("the lock is %s", granted.Name)
		}
		pass(10 * time.Second)
		if state := running.WatchState(); state != (engine.WatchState{}) {
			t.Errorf("%+v", state)
		}
	})
}

func TestASilentWatchIsOpenedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBehind(t, nil)
		b.watch.isSilent.Store(true)
		pass(10 * time.Second)
		if b.stream.IsOpen() {
			t.Error("the watch was left open though it shows nothing")
		}
		if state := b.other.WatchState(); state.BehindFor < 8*time.Second || state.Silence < 9*time.Second {
			t.Errorf("%+v after ten seconds", state)
		}
		b.watch.isSilent.Store(false)
		b.stream.Open()
		pass(2 * time.Second)
		if state := b.other.WatchState(); state.BehindFor != 0 || state.Silence > time.Second || !b.stream.IsOpen() {
			t.Errorf("%+v after the watch has recovered", state)
		}
	})
}

// hangingReads never answers a read.
type hangingReads struct{ engine.Objects }

func (hangingReads) Get(ctx context.Context, _ string, _ metav1.GetOptions) (*v1alpha1.Lock, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestAReadThatHangsKeepsNoWaiterFromALockThatTheWatchShowsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBehind(t, func(o *engine.Options) {
			all := o.Objects
			o.Objects = func(namespace string) engine.Objects { return hangingReads{all(namespace)} }
		})
		answers := b.waitBehind(t, time.Hour)
		release(t, b.healthy, "holder") // The first read of a queue is under way.
		released := time.Now()
		got := <-answers
		if served := time.Since(released); got.err != nil || served > 0 {
			t.Errorf("served after %v, %v", served, got.err)
		}
	})
}
