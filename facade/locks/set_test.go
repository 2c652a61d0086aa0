package locks_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/observe"
	"forrst.dev/lock-operator/lock/rules"
)

func setOf(t *testing.T, l *locks.Locks, caller *access.Caller, ttl, wait time.Duration, keys ...string) *locks.Set {
	t.Helper()
	set, err := l.PrepareSet(caller, lock.Request{Acquisition: rules.Acquisition{TTL: ttl}, Wait: wait}, keys, false)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// The first write is paid for when the call begins.
func TestASetPaysForItsWritesAndReads(t *testing.T) {
	for allowed, isEnough := range map[int]bool{2: false, 4: true} {
		backend := locktest.New(locktest.WithRecord())
		l, caller := newLocks(t, backend)
		caller.Permit = poorPermit(t, allowed)
		_, err := setOf(t, l, caller, time.Minute, 0, "a", "b", "c").Acquire(t.Context(), "f")
		if _, isRefused := errors.AsType[*limits.Error](err); isRefused == isEnough || isEnough && err != nil {
			t.Errorf("with %d: %v", allowed, err)
		}
		if calls := backend.Calls(); !isEnough && len(calls) > 0 {
			t.Errorf("a refused set asked for %v", calls)
		}
	}
}

func TestSetsAreCountedByTheirEnd(t *testing.T) {
	shared, caller := newLocks(t, locktest.New())
	caller.Permit = poorPermit(t, 6)
	var counted []observe.Acquired
	door := shared.Through("rest", func(end observe.Acquired) { counted = append(counted, end) })
	for _, keys := range [][]string{{"a", "b", "c"}, {"a"}, {"a", "b", "c"}} { // The last one cannot pay.
		_, _ = setOf(t, door, caller, time.Minute, 0, keys...).Acquire(t.Context(), "f") // How it ends is counted.
	}
	if want := []observe.Acquired{observe.Granted, observe.Held, observe.Limited}; !slices.Equal(counted, want) {
		t.Errorf("counted %v, want %v", counted, want)
	}
}

// queue is a backend on which a set waits for b and keeps a, since it has found another lock held three times.
type queue struct {
	*locktest.Backend
	t      *testing.T
	locks  *locks.Locks
	caller *access.Caller
	ended  chan error
	// leave ends the context of the set.
	leave func()
}

const forAWhile = 30 * time.Second

func newQueue(t *testing.T, permit *limits.Permit) *queue {
	t.Helper()
	q := &queue{Backend: locktest.New(locktest.WithRecord()), t: t, ended: make(chan error, 1)}
	q.locks, q.caller = newLocks(t, q.Backend)
	q.caller.Permit = permit
	q.take("a")
	q.take("b")
	set := setOf(t, q.locks, q.caller, 3*time.Second, forAWhile, "a", "b")
	ctx, leave := context.WithCancel(t.Context())
	q.leave = leave
	go func() {
		_, err := set.Acquire(ctx, "f")
		q.ended <- err
	}()
	synctest.Wait()
	for _, key := range []string{"a", "b", "a"} {
		q.free(key)
		synctest.Wait()
		q.take(key) // The set has given it back, but for the last one.
	}
	return q
}

// take acquires a lock for another caller, unless it is held.
func (q *queue) take(key string) {
	_, err := q.Backend.Acquire(q.t.Context(), q.caller.Namespace, lock.Request{Acquisition: rules.Acquisition{Key: key, TTL: time.Hour, Owner: "other", Holder: "bob"}})
	if err != nil && !errors.Is(err, lock.ErrHeld) {
		q.t.Error(err)
	}
}

func (q *queue) free(key string) {
	q.t.Helper()
	if err := q.Backend.Release(q.t.Context(), q.caller.Namespace, v1alpha1.FullKeyOf(key), lock.Proof{Owner: "other"}); err != nil {
		q.t.Error(err)
	}
}

// held are the owners of the locks that are held, by key.
func (q *queue) held() map[string]string {
	owners := map[string]string{}
	for _, each := range q.All() {
		owners[each.Spec.Key] = each.Spec.Holder
	}
	return owners
}

// What a set keeps it renews at the rate of its caller. If there is no room, the set ends before the lock does.
func TestRenewalsOfASetArePaidFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, poorPermit(t, 8))
		time.Sleep(8500 * time.Millisecond) //nolint:forbidigo // advances the clock of the bubble
		synctest.Wait()
		if held := q.held(); held["a"] != "alice" {
			t.Errorf("held %v", held)
		}
		time.Sleep(time.Second) //nolint:forbidigo // advances the clock of the bubble
		err := <-q.ended
		if _, isRefused := errors.AsType[*limits.Error](err); !isRefused {
			t.Errorf("got %v", err)
		}
		if held := q.held(); held["a"] != "" || held["b"] != "bob" {
			t.Errorf("held %v", held)
		}
	})
}

// Whether a renewal without an answer was stored is not known, so neither is whether the lock can be given back.
func TestARenewalOfASetWithoutAnAnswer(t *testing.T) {
	for title, after := range map[string]time.Duration{"before the wait is over": 0, "when the wait is over": forAWhile - 1500*time.Millisecond} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				q := newQueue(t, poorPermit(t, 100))
				q.SetHooks(locktest.Hooks{After: func(_ context.Context, call locktest.Call) error {
					if call.Verb == locktest.Renew && time.Since(began) > after {
						time.Sleep(2 * time.Second) //nolint:forbidigo // advances the clock of the bubble
						return lock.ErrUnavailable
					}
					return nil
				}})
				if err := <-q.ended; !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrHeld) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// A lock that could not be released is told also to a caller whose wait the stop of the server has ended.
func TestWhatASetMayHaveLeftIsToldWhateverHasEndedIt(t *testing.T) {
	for title, test := range map[string]struct {
		end func(limiter *limits.Limiter, leave func())
	}{
		"the server stops":  {func(limiter *limits.Limiter, _ func()) { limiter.Drain() }},
		"the caller leaves": {func(_ *limits.Limiter, leave func()) { leave() }},
	} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter, permit := limitedPermit(t, 100)
				q := newQueue(t, permit)
				q.SetHooks(locktest.Hooks{Before: locktest.Failing(locktest.Release, lock.ErrUnavailable)})
				test.end(limiter, q.leave)
				if err := <-q.ended; !errors.Is(err, lock.ErrUnavailable) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// limitedPermit is that of a request which has begun, at a rate of so many.
func limitedPermit(t *testing.T, rate int) (*limits.Limiter, *limits.Permit) {
	t.Helper()
	limiter, err := limits.New(limits.Limits{RatePerCaller: rate}, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	permit, err := limiter.Admit(limits.CallerOf(&http.Request{}, "alice"))
	if err != nil {
		t.Fatal(err)
	}
	if err := permit.Begin(t.Context(), limits.Work, forAWhile); err != nil {
		t.Fatal(err)
	}
	return limiter, permit
}

// A renewal is completed if the caller leaves meanwhile, so that the lock can be given back.
func TestACallerThatLeavesDuringARenewalHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, poorPermit(t, 100))
		q.SetHooks(locktest.Hooks{After: func(ctx context.Context, call locktest.Call) error {
			if call.Verb == locktest.Renew {
				q.leave()
				return ctx.Err()
			}
			return nil
		}})
		if err := <-q.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if held := q.held(); held["a"] != "" {
			t.Errorf("held %v", held)
		}
	})
}

// A lock that another call of the same request has renewed may be known to its caller.
func TestASetLeavesWhatAnotherCallHasRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, poorPermit(t, 100))
		time.Sleep(1500 * time.Millisecond) //nolint:forbidigo // the set has renewed a
		for _, each := range q.All() {
			if each.Spec.Key == "a" {
				if _, err := q.Backend.Renew(t.Context(), q.caller.Namespace, "lock:a", lock.Proof{Owner: each.Spec.Owner}, time.Hour); err != nil {
					t.Error(err)
				}
			}
		}
		if err := <-q.ended; !errors.Is(err, lock.ErrUnavailable) { // Its next renewal finds that.
			t.Errorf("got %v", err)
		}
		if held := q.held(); held["a"] != "alice" {
			t.Errorf("held %v", held)
		}
	})
}

// A panic in one of the calls that a set makes at once is an error of the set.
func TestAPanicIsAnError(t *testing.T) {
	backend := locktest.New()
	l, caller := newLocks(t, backend)
	caller.Permit = poorPermit(t, 100)
	backend.SetHooks(locktest.Hooks{Before: func(_ context.Context, call locktest.Call) error {
		if call.Verb == locktest.Release || call.Verb == locktest.Get {
			panic("a defect")
		}
		return nil
	}})
	defer func() {
		if cause := recover(); cause != "a defect" { // The goroutine of the call has its own.
			t.Errorf("recovered %v", cause)
		}
	}()
	_, err := setOf(t, l, caller, time.Minute, 0, "a", "b").Acquire(t.Context(), "f")
	t.Errorf("got %v", err)
}

// The end of the caller's context after the last grant leaves nothing.
func TestACallerThatLeavesAfterTheLastGrantHoldsNothing(t *testing.T) {
	backend := locktest.New()
	l, caller := newLocks(t, backend)
	caller.Permit = poorPermit(t, 100)
	ctx, leave := context.WithCancel(t.Context())
	backend.SetHooks(locktest.Hooks{After: func(_ context.Context, call locktest.Call) error {
		if call.Verb == locktest.Get {
			leave()
		}
		return nil
	}})
	if _, err := setOf(t, l, caller, time.Minute, 0, "a", "b").Acquire(ctx, "f"); !errors.Is(err, context.Canceled) || len(backend.All()) > 0 {
		t.Errorf("got %v, left %v", err, backend.All())
	}
}

// A grant under the same owner token is not the one that was made when the set asked.
func TestALaterGrantIsNotConfirmed(t *testing.T) {
	backend := locktest.New()
	l, caller := newLocks(t, backend)
	caller.Permit = poorPermit(t, 100)
	backend.SetHooks(locktest.Hooks{Before: func(ctx context.Context, call locktest.Call) error {
		if call.Verb != locktest.Get {
			return nil
		}
		backend.SetHooks(locktest.Hooks{})
		owner := backend.All()[0].Spec.Owner
		if err := backend.ForceRelease(ctx, call.Namespace, call.Key, ""); err != nil {
			return err
		}
		_, err := backend.Acquire(ctx, call.Namespace, lock.Request{Acquisition: rules.Acquisition{Key: call.Key.Bare(), TTL: time.Minute, Owner: owner, Holder: "alice"}})
		return err
	}})
	_, err := setOf(t, l, caller, time.Minute, 0, "a", "b").Acquire(t.Context(), "f")
	if at, ok := errors.AsType[*locks.LockError](err); !ok || at.FullKey() != "lock:a" || !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("got %v", err)
	}
}

// The stop of the server ends the wait of a set, also if its request has waited for its turn before.
func TestASetEndsWhenTheServerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, permit := limitedPermit(t, 1)
		q := newQueue(t, permit)
		time.Sleep(5 * time.Second) //nolint:forbidigo // it has paid for all
		synctest.Wait()
		limiter.Drain()
		if err := <-q.ended; !errors.Is(err, limits.ErrDraining) {
			t.Errorf("got %v", err)
		}
		if held := q.held(); held["a"] == "alice" || held["b"] == "alice" {
			t.Errorf("held %v", held)
		}
	})
}

// What a request has waited for its turn is a part of its wait for a lock.
func TestAWaitForATurnIsAPartOfTheWait(t *testing.T) {
	for title, acquire := range map[string]func(t *testing.T, l *locks.Locks, caller *access.Caller) error{
		"for one lock": func(t *testing.T, l *locks.Locks, caller *access.Caller) error {
			acquisition, err := l.Prepare(caller, lock.Request{Acquisition: rules.Acquisition{Key: "a", TTL: time.Minute}, Wait: forAWhile}, false)
			if err == nil {
				_, err = acquisition.Acquire(t.Context(), "f")
			}
			return err
		},
		"for several": func(t *testing.T, l *locks.Locks, caller *access.Caller) error {
			_, err := setOf(t, l, caller, time.Minute, forAWhile, "a").Acquire(t.Context(), "f")
			return err
		},
	} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter, err := limits.New(limits.Limits{RatePerCaller: 1}, clock.RealClock{})
				if err != nil {
					t.Fatal(err)
				}
				permit, err := limiter.Admit(limits.CallerOf(&http.Request{}, "alice"))
				if err != nil {
					t.Fatal(err)
				}
				for permit.Spend(t.Context(), limits.Work) == nil {
					continue // Nothing is left.
				}
				if err := permit.Begin(t.Context(), limits.Work, forAWhile); err != nil {
					t.Fatal(err)
				}
				backend := locktest.New(locktest.WithRecord())
				l, caller := newLocks(t, backend)
				caller.Permit = permit
				if _, err := backend.Acquire(t.Context(), caller.Namespace, lock.Request{Acquisition: rules.Acquisition{Key: "a", TTL: time.Hour, Owner: "o", Holder: "bob"}}); err != nil {
					t.Fatal(err)
				}
				began := time.Now().Add(-permit.Waited())
				if err := acquire(t, l, caller); !errors.Is(err, lock.ErrHeld) {
					t.Errorf("got %v", err)
				}
				if took := time.Since(began); permit.Waited() == 0 || took != forAWhile {
					t.Errorf("it waited for %s, %s of which for its turns", took, permit.Waited())
				}
			})
		})
	}
}
