package engine_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func TestACorrectionOfTheClockDoesNotLengthenAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine, step := startSkewed(t, etcd)
		etcd.inject(faults{before: always(errRefused)})
		answers := queued(t, engine, waiting("a", time.Hour))
		step(-time.Hour)
		etcd.inject(faults{})
		if _, err := engine.Get(t.Context(), "default", "lock:another"); !errors.Is(err, lock.ErrNotHeld) {
			t.Fatal(err)
		}
		begin := time.Now()
		mustGet(t, answers)
		if waited := time.Since(begin); waited > 3*time.Second {
			t.Errorf("acquired after %v", waited)
		}
	})
}

func TestAWaitFollowsACorrectedClock(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, holder *engine.Engine) {
		engine, step := startSkewed(t, etcd)
		step(-time.Hour)
		acquired := acquire(t, holder, by("a"))
		answers := queued(t, engine, waiting("b", 2*time.Hour))
		if _, err := engine.Get(t.Context(), "default", "lock:another"); !errors.Is(err, lock.ErrNotHeld) {
			t.Fatal(err)
		}
		mustGet(t, answers)
		if late := time.Since(acquired.Spec.ExpireTime.Time); late < 0 || late > 13*time.Second {
			t.Errorf("taken over %v after the expiry", late)
		}
	})
}

// The answer that shows that the clock was wrong may be to a read after a write that comes late.
func TestALateGrantStampedByAWrongClockIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine, step := startSkewed(t, etcd)
		step(-10 * time.Second)
		var first *v1alpha1.Lock
		etcd.inject(faults{before: func(verb string) error {
			switch {
			case verb != "create":
			case first == nil:
				first = etcd.sent()
				return errLostAnswer
			default:
				etcd.inject(faults{})
				if _, err := etcd.Create(t.Context(), first, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
			return nil
		}})
		_, err := engine.Acquire(t.Context(), "default", by("a"))
		pass(time.Minute)
		if owner := etcd.owner(name); !errors.Is(err, lock.ErrUnavailable) || owner != "" {
			t.Errorf("held by %q, error %v", owner, err)
		}
	})
}

// Responses carry whole seconds: a clock that is almost a second ahead seems right.
func TestAClockThatMayBeAheadWaitsBeforeATakeOver(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, holder *engine.Engine) {
		engine, _ := startSkewedBy(t, etcd, 900*time.Millisecond, 0)
		engine.DrawFrom(func() float64 { return 0 }) // When it reads, it learns more of the time.
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
				bubbleOf(t, fmt.Sprint("by ", wrong, ", ", part, " after a full second"), func(t *testing.T) {
					pass(part)
					test(t, wrong)
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

// wantRefused checks that the caller of a write that a wrong clock has stamped is told so, and leaves no lock.
func wantRefused(t *testing.T, etcd *etcd, what string, err error) {
	t.Helper()
	if owner := etcd.owner(name); !errors.Is(err, lock.ErrUnavailable) || owner != "" {
		t.Errorf("%s by a wrong clock: got %v, want ErrUnavailable, and %q holds the lock", what, err, owner)
	}
}

func TestAGrantOfAClockThatWasWrongFromTheStart(t *testing.T) {
	for title, lost := range map[string]error{"": nil, ", whose answer is lost": errLostAnswer} {
		wrongBy(t, func(t *testing.T, wrong time.Duration) {
			t.Helper()
			etcd := newEtcd()
			engine, _ := startSkewedBy(t, etcd, wrong, time.Second)
			etcd.inject(faults{after: once("create", lost)})
			_, err := engine.Acquire(t.Context(), "default", by("a"))
			wantRefused(t, etcd, "a grant"+title, err)
			etcd.made()
			wantTTL(t, "the next grant", acquire(t, engine, by("b")), time.Second+time.Millisecond)
			if diff := cmp.Diff([]string{"create"}, etcd.made()); diff != "" {
				t.Errorf("requests of a clock that is right by now (-want +got):\n%s", diff)
			}
		})
	}
}

// As a pause of the whole machine, which no clock of it notices.
func TestStampsOfAMachineThatStoodStill(t *testing.T) {
	const tolerance = time.Second + time.Millisecond // The allowance.
	wrongBy(t, func(t *testing.T, wrong time.Duration) {
		t.Helper()
		etcd := newEtcd()
		engine, step := startSkewed(t, etcd)
		acquire(t, engine, by("first"))
		pass(8 * time.Second)
		release(t, engine, "first")
		step(-wrong.Abs())
		_, err := engine.Acquire(t.Context(), "default", by("a"))
		wantRefused(t, etcd, "a grant", err)
		wantTTL(t, "the next grant", acquire(t, engine, by("a")), tolerance)

		pass(8 * time.Second)
		step(-wrong.Abs())
		renewed, err := engine.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		wantTTL(t, "a renewal", renewed, tolerance)

		answers := queued(t, engine, waiting("b", time.Hour))
		pass(8 * time.Second)
		step(-wrong.Abs())
		release(t, engine, "a")
		wantRefused(t, etcd, "a hand-off", (<-answers).err)
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
		behind.mustMake(t, "create")
	})
}

// A stamp may be wrong by a second more than an answer shows.
func TestAStampThatIsAcceptedIsCoveredByTheAllowance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		skewed, step := startSkewedBy(t, etcd, 0, engine.DefaultClockSkewAllowance)
		taker := startWith(t, engine.Options{ // Its clock is exact.
			Objects: etcd.locks, Informer: etcd, Limits: rules.DefaultLimits(), ClockSkewAllowance: engine.DefaultClockSkewAllowance,
		})
		for range 30 { // narrows the estimate to milliseconds
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
