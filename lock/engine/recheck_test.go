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
	t              *testing.T
	etcd           *etcd
	watch          *badWatch
	stream         *engine.TestStream
	healthy, other *engine.Engine
}

func newBehind(t *testing.T, change func(*engine.Options)) *behind {
	t.Helper()
	etcd := newEtcd()
	b := &behind{t: t, etcd: etcd, watch: &badWatch{Informer: etcd}, stream: engine.NewTestStream(t), healthy: start(t, etcd)}
	options := engine.Options{
		Objects: etcd.locks, Limits: rules.DefaultLimits(),
		Informer: b.watch, Stream: b.stream.WatchStream,
	}
	if change != nil {
		change(&options)
	}
	b.other = startWith(t, options)
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
	isSilent := func(b *behind) { b.watch.isSilent.Store(true) }
	isClosed := func(b *behind) { b.stream.Close(); isSilent(b) }
	cases := map[string]struct {
		fail func(*behind)
		// ahead is how long before the release the watch fails.
		ahead  time.Duration
		within time.Duration
	}{
		"the watch stalls at the release":     {fail: isSilent, within: 6 * time.Second},
		"the watch has been stalled for long": {fail: isSilent, ahead: 10 * time.Minute, within: 6 * time.Second},
		"the watch is closed at the release":  {fail: isClosed, within: time.Second},
		"the watch has been closed for long":  {fail: isClosed, ahead: 10 * time.Minute, within: 2 * time.Second},
		"the watch shows renewals late, and not the release": {
			fail: func(b *behind) {
				b.watch.lag.Store(int64(4 * time.Second))
				b.watch.losesDeletes.Store(true)
				for range 100 {
					pass(time.Second)
					if _, err := b.healthy.Renew(b.t.Context(), "default", key, lock.Proof{Owner: "holder"}, 0); err != nil {
						b.t.Error(err)
					}
				}
			},
			within: 6 * time.Second,
		},
		"one event is lost": {fail: func(b *behind) { b.watch.losesDeletes.Store(true) }, within: 6 * time.Second},
	}
	for title, test := range cases {
		bubbleOf(t, title, func(t *testing.T) {
			b := newBehind(t, nil)
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

func TestANewWaiterReadsAGrantOfItsEngineWhoseEndTheWatchMayHaveLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBehind(t, nil)
		held := by("holder")
		held.TTL = time.Hour
		acquire(t, b.other, held)
		b.watch.losesDeletes.Store(true)
		release(t, b.healthy, "holder")
		pass(5 * time.Second)
		if _, err := b.other.Acquire(t.Context(), "default", waiting("waiter", time.Second)); err != nil {
			t.Errorf("a lock that was free for 5 s before the wait: %v, want it granted", err)
		}
	})
}

// However many callers wait, and whatever the watch shows meanwhile, nothing but the re-reads of the head is sent.
func TestTenThousandWaitersCostTheReadsOfTheirHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBehind(t, nil)
		answers := b.waitBehind(t, time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i := range 10_000 {
			go func() { _, _ = b.other.Acquire(ctx, "default", waiting(fmt.Sprint(i), time.Hour)) }() // until the test ends
		}
		for range 60 {
			pass(time.Second)
			if _, err := b.healthy.Renew(t.Context(), "default", key, lock.Proof{Owner: "holder"}, 0); err != nil {
				t.Error(err)
			}
		}
		// The API server ends each watch once in a while, and the informer opens the next.
		b.stream.Close()
		pass(50 * time.Millisecond)
		b.stream.Open()
		made := slices.DeleteFunc(b.etcd.made(), func(verb string) bool { return verb == "update" }) // the holder's
		if reads := len(made); reads < 60/5 || reads > 60*4/(5*3)+1 || slices.ContainsFunc(made, func(verb string) bool { return verb != "get" }) {
			t.Errorf("10,000 waiters made the requests %v in a minute, want one read in 3.75 to 5 s", made)
		}
		release(t, b.healthy, "holder")
		mustGet(t, answers)
	})
}

// All queues of an engine re-read within one budget, in which each has its turn.
func TestRechecksAreBounded(t *testing.T) {
	cases := map[string]struct {
		queues      int
		isClosed    bool
		least, most int // reads in 20 s
	}{
		"few, the watch is open":    {queues: 100, least: 100 * 20 / 5, most: 100 * 20 * 4 / (5 * 3)},
		"many, the watch is open":   {queues: 2000, least: 200 * 19, most: 200*20 + 1},
		"many, the watch is closed": {queues: 1000, isClosed: true, least: 200 * 19, most: 200*20 + 1},
	}
	for title, test := range cases {
		bubbleOf(t, title, func(t *testing.T) {
			b := newBehind(t, nil)
			answers := make(chan answer, test.queues)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for i := range test.queues {
				held, wanted := by("holder"), waiting("waiter", time.Hour)
				held.Key, held.TTL = fmt.Sprint(i), time.Hour
				wanted.Key = held.Key
				acquire(t, b.healthy, held)
				queueUp(ctx, t, b.other, wanted, answers)
			}
			pass(20 * time.Second) // Each new queue reads once.
			if test.isClosed {
				b.stream.Close()
				b.watch.isSilent.Store(true)
				pass(time.Second)
			}
			b.etcd.made()
			pass(20 * time.Second)
			if made := len(b.etcd.made()); made < test.least || made > test.most {
				t.Errorf("%d reads in 20 s, want %d to %d", made, test.least, test.most)
			}
			last := test.queues - 1 // It has its turn as well.
			if err := b.healthy.Release(ctx, "default", v1alpha1.FullKeyOf(fmt.Sprint(last)), lock.Proof{Owner: "holder"}); err != nil {
				t.Fatal(err)
			}
			released, most := time.Now(), 6*time.Second+time.Duration(test.queues)*5*time.Millisecond
			got := <-answers
			if served := time.Since(released); got.err != nil || served > most {
				t.Errorf("served after %v, %v", served, got.err)
			}
		})
	}
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
		if served := time.Since(released); got.err != nil || served > 6*time.Second {
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
		bubbleOf(t, title, func(t *testing.T) {
			b := newBehind(t, nil)
			answers := b.waitBehind(t, 6*time.Second)
			b.stream.Close()
			test.fail(b)
			if got := <-answers; !errors.Is(got.err, test.want) {
				t.Errorf("got %v, want %v", got.err, test.want)
			}
			b.etcd.inject(faults{})
		})
	}
}

func TestTheStateOfTheWatchTellsForHowLongItIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBehind(t, nil)
		want := func(closedFor time.Duration, when string) {
			t.Helper()
			if state := b.other.WatchState(); state.ClosedFor != closedFor {
				t.Errorf("%s: %+v", when, state)
			}
		}
		pass(time.Hour)
		want(0, "open")
		b.stream.Close()
		pass(200 * time.Millisecond)
		want(0, "just closed")
		pass(9800 * time.Millisecond)
		want(10*time.Second, "closed")
		b.stream.Open()
		want(0, "open again")
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
