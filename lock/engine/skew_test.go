package engine_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

// steppedClock is the clock of a machine that is set by hand.
type steppedClock struct {
	clock.RealClock
	offset atomic.Int64
}

func (c *steppedClock) Now() time.Time { return c.RealClock.Now().Add(time.Duration(c.offset.Load())) }

// startSkewed returns an engine whose clock can be stepped, and which learns the right
// time from each answer of etcd, as it does from those of the API server.
func startSkewed(t *testing.T, etcd *etcd) (*engine.Engine, func(time.Duration)) {
	t.Helper()
	return startSkewedBy(t, etcd, 0, time.Second)
}

// startSkewedBy is startSkewed with a clock that was wrong from the start.
func startSkewedBy(t *testing.T, etcd *etcd, ahead, allowance time.Duration) (*engine.Engine, func(time.Duration)) {
	t.Helper()
	local := &steppedClock{}
	local.offset.Store(int64(ahead))
	checked := servertime.New(local)
	engine := startWith(t, engine.Options{
		Objects: func(namespace string) engine.Objects {
			return answering{Objects: etcd.locks(namespace), local: local, clock: checked}
		},
		Informer: etcd, Limits: rules.DefaultLimits(), ClockSkewAllowance: allowance, Clock: checked,
	})
	return engine, func(by time.Duration) { local.offset.Add(int64(by)) }
}

// The answer that was under way during the step cannot tell of it.
func TestAClockThatIsSteppedDuringAReleaseDoesNotRefuseIt(t *testing.T) {
	releases := map[string]func(*testing.T, *engine.Engine) error{
		"release": func(t *testing.T, engine *engine.Engine) error {
			t.Helper()
			return engine.Release(t.Context(), "default", key, lock.Proof{Owner: "a"})
		},
		"forced release": func(t *testing.T, engine *engine.Engine) error {
			t.Helper()
			return engine.ForceRelease(t.Context(), "default", key, "stuck")
		},
	}
	for title, end := range releases {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				etcd := newEtcd()
				skewed, step := startSkewed(t, etcd)
				mustAcquire(t, start(t, etcd), "a", 3*time.Second)
				if _, err := skewed.Get(t.Context(), "default", key); err != nil {
					t.Fatal(err)
				}
				etcd.inject(faults{after: func(string) error {
					etcd.inject(faults{})
					step(6 * time.Second)
					return nil
				}})
				if err := end(t, skewed); err != nil {
					t.Errorf("got %v", err)
				}
				if owner := etcd.owner(name); owner != "" {
					t.Errorf("%q holds the lock", owner)
				}
				mustAcquire(t, start(t, etcd), "a", 3*time.Second)
				pass(4 * time.Second)
				if err := end(t, skewed); !errors.Is(err, lock.ErrNotHeld) {
					t.Errorf("after its end: got %v", err)
				}
			})
		})
	}
}

func TestAClockThatIsAheadDoesNotTakeOverALiveLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		holder := start(t, etcd)
		skewed, step := startSkewed(t, etcd)
		acquire(t, holder, by("a"))
		// A read that makes the clock fresh, before it is set.
		if _, err := skewed.Get(t.Context(), "default", key); err != nil {
			t.Fatal(err)
		}
		step(time.Hour)
		if _, err := skewed.Acquire(t.Context(), "default", by("b")); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("without waiting: got %v, want ErrHeld", err)
		}
		step(time.Hour)
		if _, err := skewed.Acquire(t.Context(), "default", waiting("b", 20*time.Second)); !errors.Is(err, lock.ErrTimeout) {
			t.Errorf("waiting: got %v, want ErrTimeout", err)
		}
		if owner := etcd.owner(name); owner != "a" {
			t.Errorf("%q holds the lock, want a", owner)
		}
	})
}

func TestStampsAreRightEvenIfTheLocalClockIsWrong(t *testing.T) {
	for title, offset := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				etcd := newEtcd()
				engine, step := startSkewed(t, etcd)
				if _, err := engine.Get(t.Context(), "default", key); !errors.Is(err, lock.ErrNotHeld) {
					t.Fatal(err)
				}
				inTime := func(what string, expireTime time.Time) {
					t.Helper()
					if off := time.Until(expireTime) - 30*time.Second; off.Abs() > 2*time.Second {
						t.Errorf("%s ends %v from a ttl after now", what, off)
					}
				}
				step(offset)
				request := by("a")
				inTime("a grant", acquire(t, engine, request).Spec.ExpireTime.Time)
				step(offset)
				renewed, err := engine.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0)
				if err != nil {
					t.Fatal(err)
				}
				inTime("a renewal", renewed.Spec.ExpireTime.Time)
				answers := make(chan answer, 1)
				queueUp(t.Context(), t, engine, waiting("b", time.Minute), answers)
				step(offset)
				release(t, engine, "a")
				if got := <-answers; got.err != nil {
					t.Fatal(got.err)
				}
				handedOn, err := engine.Get(t.Context(), "default", key)
				if err != nil {
					t.Fatal(err)
				}
				inTime("a hand-off", handedOn.Spec.ExpireTime.Time)
			})
		})
	}
}

func TestACorrectionOfTheClockDoesNotLengthenAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine, step := startSkewed(t, etcd)
		etcd.inject(faults{before: always(errRefused)})
		answers := make(chan answer, 1)
		queueUp(t.Context(), t, engine, waiting("a", time.Hour), answers)
		step(-time.Hour)
		etcd.inject(faults{})
		begin := time.Now()
		if got := <-answers; got.err != nil {
			t.Fatal(got.err)
		}
		if waited := time.Since(begin); waited > 3*time.Second {
			t.Errorf("acquired after %v", waited)
		}
	})
}

func TestAWaitFollowsACorrectedClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		holder := start(t, etcd)
		engine, step := startSkewed(t, etcd)
		step(-time.Hour)
		acquired := acquire(t, holder, by("a"))
		answers := make(chan answer, 1)
		queueUp(t.Context(), t, engine, waiting("b", 2*time.Hour), answers)
		if _, err := engine.Get(t.Context(), "default", "lock:another"); !errors.Is(err, lock.ErrNotHeld) {
			t.Fatal(err)
		}
		if got := <-answers; got.err != nil {
			t.Fatal(got.err)
		}
		if late := time.Since(acquired.Spec.ExpireTime.Time); late < 0 || late > 13*time.Second {
			t.Errorf("taken over %v after the expiry", late)
		}
	})
}

// The clock is stepped while it is being checked.
func TestARenewalIsStampedByAClockThatWasCheckedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine, step := startSkewed(t, etcd)
		acquire(t, engine, by("a"))
		pass(15 * time.Second)
		isFirst := true
		etcd.inject(faults{before: func(verb string) error {
			if verb == "get" && isFirst {
				isFirst = false
				step(-time.Hour)
			}
			return nil
		}})
		renewed, err := engine.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if off := time.Until(renewed.Spec.ExpireTime.Time) - 30*time.Second; off.Abs() > 2*time.Second {
			t.Errorf("renewed until %v from a ttl after now", off)
		}
		etcd.inject(faults{})
	})
}

func TestAGrantStampedByAWrongClockIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine, step := startSkewed(t, etcd)
		step(time.Hour)
		etcd.inject(faults{before: once("delete", errLostAnswer)})
		_, err := engine.Acquire(t.Context(), "default", by("a"))
		passOrphanWindow()
		if owner := etcd.owner(name); err == nil || owner != "" {
			t.Errorf("held by %q, error %v", owner, err)
		}
	})
}

// Responses carry whole seconds: a clock that is almost a second ahead seems right.
func TestAClockThatMayBeAheadWaitsBeforeATakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		holder := start(t, etcd)
		engine, _ := startSkewedBy(t, etcd, 900*time.Millisecond, 0)
		pass(950 * time.Millisecond)
		acquired := acquire(t, holder, by("a"))
		got := acquire(t, engine, waiting("b", time.Hour))
		if early := time.Until(acquired.Spec.ExpireTime.Time); early > 0 {
			t.Errorf("taken over %v before the expiry, at %v", early, got.Spec.AcquireTime)
		}
	})
}

// wrongBy are offsets of a clock that is a little wrong. Dates have whole seconds, so it matters in
// which part of a second they are sent.
func wrongBy(t *testing.T, test func(t *testing.T, wrong time.Duration)) {
	t.Helper()
	for step := 1250 * time.Millisecond; step <= 6250*time.Millisecond; step += 1250 * time.Millisecond {
		for _, wrong := range []time.Duration{-step, step} {
			for _, part := range []time.Duration{0, 400 * time.Millisecond, 900 * time.Millisecond} {
				t.Run(fmt.Sprint("by ", wrong, ", ", part, " after a full second"), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						pass(part)
						test(t, wrong)
					})
				})
			}
		}
	}
}

// wantTTL checks that a lock ends a ttl of 30 s from now.
func wantTTL(t *testing.T, what string, stored *v1alpha1.Lock, tolerance time.Duration) {
	t.Helper()
	if off := time.Until(stored.Spec.ExpireTime.Time) - 30*time.Second; off.Abs() > tolerance {
		t.Errorf("%s ends %v from a ttl after now", what, off)
	}
}

func TestAGrantOfAClockThatWasWrongFromTheStart(t *testing.T) {
	wrongBy(t, func(t *testing.T, wrong time.Duration) {
		t.Helper()
		etcd := newEtcd()
		engine, _ := startSkewedBy(t, etcd, wrong, time.Second)
		wantTTL(t, "the grant", acquire(t, engine, by("a")), time.Second+time.Millisecond)
		if made := len(etcd.made()); made > 3 {
			t.Errorf("%d requests", made)
		}
		release(t, engine, "a")
		wantTTL(t, "the next grant", acquire(t, engine, by("b")), time.Second+time.Millisecond)
		if diff := cmp.Diff([]string{"delete", "create"}, etcd.made()); diff != "" {
			t.Errorf("requests of a clock that is right by now (-want +got):\n%s", diff)
		}
	})
}

// The answer to the read that finds such a grant shows that the clock was wrong.
func TestAGrantOfAWrongClockWhoseAnswerIsLost(t *testing.T) {
	wrongBy(t, func(t *testing.T, wrong time.Duration) {
		t.Helper()
		etcd := newEtcd()
		skewed, _ := startSkewedBy(t, etcd, wrong, time.Second)
		etcd.inject(faults{after: once("create", errLostAnswer)})
		wantTTL(t, "the grant", acquire(t, skewed, by("a")), time.Second+100*time.Millisecond)
		wantTTL(t, "the lock", etcd.stored(name), time.Second+100*time.Millisecond)
	})
}

// As a pause of the whole machine, which no clock of it notices.
func TestStampsOfAClockThatGoesWrongWhileItIsFresh(t *testing.T) {
	const tolerance = time.Second + time.Millisecond // The allowance.
	wrongBy(t, func(t *testing.T, wrong time.Duration) {
		t.Helper()
		etcd := newEtcd()
		engine, step := startSkewed(t, etcd)
		acquire(t, engine, by("first"))
		pass(8 * time.Second)
		release(t, engine, "first")
		step(wrong)
		wantTTL(t, "a grant", acquire(t, engine, by("a")), tolerance)

		pass(8 * time.Second)
		step(wrong)
		renewed, err := engine.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		wantTTL(t, "a renewal", renewed, tolerance)

		answers := make(chan answer, 1)
		queueUp(t.Context(), t, engine, waiting("b", time.Hour), answers)
		pass(8 * time.Second)
		step(wrong)
		release(t, engine, "a")
		if got := <-answers; got.err != nil {
			t.Fatal(got.err)
		}
		wantTTL(t, "a hand-off", etcd.stored(name), tolerance)
	})
}

// Admission stamps the locks, by its own clock.
func TestAWrongClockDoesNotEndGrantsThatAdmissionStamped(t *testing.T) {
	wrongBy(t, func(t *testing.T, wrong time.Duration) {
		t.Helper()
		behind, local := newAdmitting(), &steppedClock{}
		local.offset.Store(int64(wrong))
		checked := servertime.New(local)
		engine := startWith(t, engine.Options{
			Objects:  func(string) engine.Objects { return answering{Objects: behind, local: local, clock: checked} },
			Informer: behind, Limits: rules.DefaultLimits(), IsAdmitted: true, ClockSkewAllowance: time.Second, Clock: checked,
		})
		wantTTL(t, "the grant", acquire(t, engine, by("a")), 0)
		if diff := cmp.Diff([]string{"create"}, behind.made()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

// A grant that was not delivered, since it looked expired, is held by its engine alone.
func TestAGrantThatLooksExpiredByAStepOfTheClockIsEnded(t *testing.T) {
	for _, verb := range []string{"create", "update"} {
		synctest.Test(t, func(t *testing.T) {
			etcd := newEtcd()
			engine, step := startSkewedBy(t, etcd, -time.Hour, time.Second)
			acquire(t, engine, by("first"))
			if verb == "create" {
				release(t, engine, "first")
			}
			etcd.inject(faults{after: func(got string) error {
				if got == verb {
					etcd.inject(faults{})
					step(time.Hour)
				}
				return nil
			}})
			answers := make(chan answer, 1)
			queueUp(t.Context(), t, engine, waiting("next", time.Hour), answers)
			if verb == "update" {
				release(t, engine, "first")
			}
			if got := <-answers; !errors.Is(got.err, lock.ErrUnavailable) {
				t.Errorf("%s: got %v, want ErrUnavailable", verb, got.err)
			}
			pass(time.Second)
			if owner := etcd.owner(name); owner != "" {
				t.Errorf("%s: the lock is held by %q", verb, owner)
			}
		})
	}
}

// A stamp may be wrong by a second more than an answer shows.
func TestAStampThatIsAcceptedIsCoveredByTheAllowance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		skewed, step := startSkewed(t, etcd) // allowance: 1 s, the default
		taker := start(t, etcd)              // exact clock, allowance 1 s
		for range 30 {                       // narrows the estimate to milliseconds
			if _, err := skewed.Get(t.Context(), "default", key); !errors.Is(err, lock.ErrNotHeld) {
				t.Fatal(err)
			}
			pass(97 * time.Millisecond)
		}
		pass(time.Until(time.Now().Truncate(time.Second).Add(1950 * time.Millisecond)))
		step(-1400 * time.Millisecond) // The machine was paused, no clock of it noticed.
		sent := time.Now()
		acquired := acquire(t, skewed, by("a")) // ttl 30 s; the SDK's Held trusts it until sent+30 s
		t.Logf("stamped to end %v after the request was sent", acquired.Spec.ExpireTime.Sub(sent))
		pass(time.Until(sent.Add(29*time.Second + 700*time.Millisecond)))
		if _, err := taker.Acquire(t.Context(), "default", by("b")); err == nil {
			t.Errorf("b holds %v before a's deadline", time.Until(sent.Add(30*time.Second)))
		}
	})
}
