package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
)

// waiting is by with a wait.
func waiting(owner string, wait time.Duration) lock.Request {
	request := by(owner)
	request.Wait = wait
	return request
}

// acquire acquires or fails the test.
func acquire(t *testing.T, engine *engine.Engine, request lock.Request) *v1alpha1.Lock {
	t.Helper()
	acquired, err := engine.Acquire(t.Context(), "default", request)
	if err != nil {
		t.Fatal(err)
	}
	return acquired
}

func release(t *testing.T, engine *engine.Engine, owner string) {
	t.Helper()
	if err := engine.Release(t.Context(), "default", key, lock.Proof{Owner: owner}); err != nil {
		t.Fatal(err)
	}
}

// answer is the result of an acquire.
type answer struct {
	owner string
	token int64
	err   error
}

// queueUp starts an acquire and returns when it waits in the queue.
func queueUp(ctx context.Context, t *testing.T, engine *engine.Engine, request lock.Request, answers chan<- answer) {
	t.Helper()
	go func() {
		acquired, err := engine.Acquire(ctx, "default", request)
		result := answer{owner: request.Owner, err: err}
		if err == nil {
			result.token, result.err = acquired.FencingToken()
		}
		answers <- result
	}()
	synctest.Wait()
}

func TestWaitersAreServedInOrderWithOneWriteEach(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		acquire(t, engine, by("0"))
		answers := make(chan answer, 20)
		var want []string
		for i := range 20 {
			owner := fmt.Sprint(i + 1)
			queueUp(t.Context(), t, engine, waiting(owner, time.Hour), answers)
			want = append(want, owner)
		}
		etcd.made()

		pass(20 * time.Second) // Waiting makes no requests but the reads of the head.
		if made := etcd.made(); len(made) > 20*4/(5*3) || slices.ContainsFunc(made, func(verb string) bool { return verb != "get" }) {
			t.Errorf("waiting made requests: %v", made)
		}
		holder, last := "0", int64(0)
		var got []string
		for range want {
			release(t, engine, holder)
			next := <-answers
			if next.err != nil || next.token <= last {
				t.Fatalf("%s got token %d after %d, %v", next.owner, next.token, last, next.err)
			}
			holder, last = next.owner, next.token
			got = append(got, next.owner)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
		if made := etcd.made(); !slices.Equal(made, slices.Repeat([]string{"update"}, 20)) {
			t.Errorf("requests %v, want one update for each hand-off", made)
		}
		release(t, engine, holder)
	})
}

func TestAWaitEnds(t *testing.T) {
	cases := map[string]struct {
		wait      time.Duration
		cancelled time.Duration
		want      []error
		after     time.Duration
	}{
		"at its bound":                  {wait: 3 * time.Second, want: []error{lock.ErrTimeout, lock.ErrHeld}, after: 3 * time.Second},
		"with its context":              {wait: lock.WaitForever, cancelled: time.Second, want: []error{context.Canceled}, after: time.Second},
		"at its bound, though the head": {wait: time.Nanosecond, want: []error{lock.ErrTimeout}, after: time.Nanosecond},
	}
	for title, test := range cases {
		bubbles(t, title, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
			acquire(t, engine, by("a"))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.cancelled > 0 {
				time.AfterFunc(test.cancelled, cancel)
			}
			begin := time.Now()
			_, err := engine.Acquire(ctx, "default", waiting("b", test.wait))
			for _, want := range test.want {
				if !errors.Is(err, want) {
					t.Errorf("got %v, want %v", err, want)
				}
			}
			if held, ok := errors.AsType[*lock.HeldError](err); errors.Is(err, lock.ErrTimeout) && (!ok || held.Holder != "alice") {
				t.Errorf("%v does not name the holder", err)
			}
			if waited := time.Since(begin); waited != test.after {
				t.Errorf("waited %v, want %v", waited, test.after)
			}
			// There is no waiter left to hand off to.
			release(t, engine, "a")
			etcd.mustBeFree(t)
		})
	}
}

func TestAShortWaitStillAcquiresAFreeLock(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		etcd.inject(faults{before: func(string) error { pass(50 * time.Millisecond); return nil }})
		acquire(t, engine, waiting("a", time.Millisecond))
		etcd.inject(faults{})
	})
}

func TestAHandOffSkipsACallerThatHasLeft(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		acquire(t, engine, by("a"))
		answers := make(chan answer, 3)
		ctx, cancel := context.WithCancel(t.Context())
		queueUp(ctx, t, engine, waiting("gone", time.Hour), answers)
		queueUp(t.Context(), t, engine, waiting("b", time.Hour), answers)
		// The caller leaves while the hand-off to it is under way.
		etcd.inject(faults{after: func(string) error {
			cancel()
			pass(time.Millisecond)
			return nil
		}})
		begin := time.Now()
		released := make(chan error, 1)
		go func() { released <- engine.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}) }()
		if got := <-answers; !errors.Is(got.err, context.Canceled) {
			t.Errorf("the caller that has gone got %+v", got)
		}
		if got := <-answers; got.owner != "b" || got.err != nil {
			t.Errorf("got %+v, want the lock for b", got)
		}
		if waited := time.Since(begin); waited > time.Second {
			t.Errorf("b waited %v for a free lock", waited)
		}
		if err := <-released; err != nil {
			t.Error(err)
		}
		etcd.inject(faults{})
		release(t, engine, "b")
		if known := engine.KnownGrants(); known != 0 {
			t.Errorf("%d grants are remembered that have ended", known)
		}
	})
}

func TestAnExpiredLockIsTakenOverByTheTimer(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		held := acquire(t, engine, by("a"))
		etcd.made()
		got := acquire(t, engine, waiting("b", time.Hour))
		if want := held.Spec.ExpireTime.Add(time.Second); !got.Spec.AcquireTime.Time.Equal(want) {
			t.Errorf("taken over at %v, want expireTime and the allowance, %v", got.Spec.AcquireTime, want)
		}
		if diff := cmp.Diff([]string{"update"}, etcd.writes()); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
}

// The queue's goroutine and a caller that releases must not both write for the head.
func TestAReleaseWhileTheHeadIsTriedFor(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		etcd.mute(true)
		acquire(t, engine, by("a"))
		etcd.inject(faults{before: func(verb string) error {
			if verb == "create" {
				pass(50 * time.Millisecond)
			}
			return nil
		}})
		answers := queued(t, engine, waiting("b", time.Hour))
		release(t, engine, "a")
		mustGet(t, answers)
		etcd.inject(faults{})
		release(t, engine, "b")
		etcd.mustBeFree(t)
	})
}

// What the try reads was true before the release only, and no watch corrects it.
func TestAReleaseWhileTheHeadReadsTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		etcd.mute(true)
		acquire(t, engine, by("a"))
		etcd.inject(faults{after: func(verb string) error {
			if verb == "get" {
				pass(50 * time.Millisecond)
			}
			return nil
		}})
		answers := queued(t, engine, waiting("b", time.Hour))
		begin := time.Now()
		release(t, engine, "a")
		mustGet(t, answers)
		if waited := time.Since(begin); waited > 200*time.Millisecond {
			t.Errorf("noticed after %v", waited)
		}
	})
}

func TestAWaitOutlastsAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		etcd.inject(faults{before: always(errRefused)})
		answers := make(chan answer, 2)
		queueUp(t.Context(), t, engine, waiting("a", 5*time.Second), answers)
		queueUp(t.Context(), t, engine, waiting("b", time.Hour), answers)
		if got := <-answers; !errors.Is(got.err, lock.ErrUnavailable) {
			t.Errorf("after its wait, a caller is told %v, want ErrUnavailable", got.err)
		}
		etcd.inject(faults{})
		if got := <-answers; got.owner != "b" || got.err != nil {
			t.Errorf("got %+v, want the lock for b", got)
		}
	})
}

func TestWaitersGetAnErrorWhenTheEngineStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine, stop := startStoppable(t, etcd)
		acquire(t, engine, by("a"))
		answers := make(chan answer, 2)
		queueUp(t.Context(), t, engine, waiting("b", time.Hour), answers)
		queueUp(t.Context(), t, engine, waiting("c", time.Hour), answers)
		stop()
		for range 2 {
			if got := <-answers; !errors.Is(got.err, lock.ErrUnavailable) {
				t.Errorf("got %v, want ErrUnavailable", got.err)
			}
		}
	})
}

// Admission may judge by another clock than the engine.
func TestATakeOverThatIsRefusedIsNotRepeatedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		acquire(t, engine, by("a"))
		pass(31 * time.Second)
		refused := refusedAsHeld(name, errors.New("held, by the clock of the webhook"))
		etcd.inject(faults{before: failing("update", refused)})
		etcd.made()
		if _, err := engine.Acquire(t.Context(), "default", by("b")); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("without waiting: got %v, want ErrHeld", err)
		}
		etcd.mustMake(t, "create", "get", "update", "get")
		if _, err := engine.Acquire(t.Context(), "default", waiting("b", 10*time.Second)); !errors.Is(err, lock.ErrTimeout) {
			t.Errorf("got %v, want ErrTimeout", err)
		}
		if made := len(etcd.made()); made < 5 || made > 60 {
			t.Errorf("made %d requests in ten seconds", made)
		}
		etcd.inject(faults{})
	})
}
