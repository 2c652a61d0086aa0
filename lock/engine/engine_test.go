package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

const (
	key  = v1alpha1.FullKey("lock:billing:report")
	name = "billing--report"
)

// start returns an engine that runs until the test ends.
func start(t *testing.T, etcd *etcd) *engine.Engine {
	t.Helper()
	engine, stop := startStoppable(t, etcd)
	t.Cleanup(stop)
	return engine
}

// startStoppable returns a running engine, on the timers of the test's bubble, and
// what ends it and waits until it has ended.
func startStoppable(t *testing.T, etcd *etcd) (running *engine.Engine, stop func()) {
	t.Helper()
	return run(t, engine.Options{
		Objects: etcd.locks, Limits: rules.DefaultLimits(), ClockSkewAllowance: time.Second,
		Informer: etcd, Stream: engine.NewTestStream(t).WatchStream,
	})
}

// startWith is start with other options.
func startWith(t *testing.T, options engine.Options) *engine.Engine {
	t.Helper()
	engine, stop := run(t, options)
	t.Cleanup(stop)
	return engine
}

func run(t *testing.T, options engine.Options) (running *engine.Engine, stop func()) {
	t.Helper()
	engine, err := engine.New(options)
	if err != nil {
		t.Fatal(err)
	}
	engine.DrawFrom(nextSource(t))
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- engine.Start(ctx) }()
	return engine, func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}
}

func by(owner string) lock.Request {
	return lock.Request{Acquisition: rules.Acquisition{Key: "billing:report", Owner: owner, TTL: 30 * time.Second, Holder: "alice"}}
}

func TestAcquireAndReleaseAreTwoWritesAndNoRead(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		acquired, err := engine.Acquire(t.Context(), "default", by("a"))
		if err != nil {
			t.Fatal(err)
		}
		if token, err := acquired.FencingToken(); err != nil || token != 1 {
			t.Errorf("fencing token %d, %v; want the revision of the create, 1", token, err)
		}
		release(t, engine, "a")
		etcd.mustMake(t, "create", "delete")
		if err := engine.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("the second release returns %v, want ErrNotHeld", err)
		}
	})
}

func TestAcquireGeneratesAnOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := start(t, newEtcd())
		request := by("")
		first, err := engine.Acquire(t.Context(), "default", request)
		if err != nil {
			t.Fatal(err)
		}
		request.Key = "another"
		second, err := engine.Acquire(t.Context(), "default", request)
		if err != nil {
			t.Fatal(err)
		}
		if len(first.Spec.Owner) != 36 || first.Spec.Owner == second.Spec.Owner {
			t.Errorf("owners %q and %q are not two UUIDs", first.Spec.Owner, second.Spec.Owner)
		}
	})
}

func TestAcquireOfAHeldLockNamesTheHolderAndChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, _ *etcd, engine *engine.Engine) {
		acquired, err := engine.Acquire(t.Context(), "default", by("a"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = engine.Acquire(t.Context(), "default", by("b"))
		var held *lock.HeldError
		if !errors.As(err, &held) || held.Holder != "alice" || !held.ExpireTime.Equal(acquired.Spec.ExpireTime.Time) {
			t.Errorf("got %v, want who holds it and until when", err)
		}
		if _, err := engine.Acquire(t.Context(), "default", by("a")); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("the same owner acquires twice: %v", err)
		}
		after, err := engine.Get(t.Context(), "default", key)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(acquired, after); diff != "" {
			t.Errorf("the holder's record changed (-before +after):\n%s", diff)
		}
	})
}

func TestAcquireTakesOverOnlyAfterExpiryAndAllowance(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		first, err := engine.Acquire(t.Context(), "default", by("a"))
		if err != nil {
			t.Fatal(err)
		}
		pass(31*time.Second - time.Microsecond)
		if _, err := engine.Acquire(t.Context(), "default", by("b")); !errors.Is(err, lock.ErrHeld) {
			t.Fatalf("a microsecond early: got %v, want ErrHeld", err)
		}
		pass(time.Microsecond)
		etcd.made()
		second, err := engine.Acquire(t.Context(), "default", by("b"))
		if err != nil {
			t.Fatal(err)
		}
		etcd.mustMake(t, "create", "get", "update")
		before, _ := first.FencingToken()
		after, _ := second.FencingToken()
		if second.UID != first.UID || after <= before {
			t.Errorf("take-over of %s with token %d gives %s with token %d", first.UID, before, second.UID, after)
		}
		if err := engine.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}); !errors.Is(err, lock.ErrOwnerMismatch) {
			t.Errorf("the former owner releases: %v", err)
		}
	})
}

func TestReleaseAfterTheObjectWasEdited(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		acquire(t, engine, by("a"))
		etcd.touch()
		release(t, engine, "a")
		etcd.mustBeFree(t)
	})
}

func TestReleaseOfAnExpiredLock(t *testing.T) {
	bubble(t, func(t *testing.T, _ *etcd, engine *engine.Engine) {
		acquire(t, engine, by("a"))
		pass(30 * time.Second)
		if err := engine.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("got %v, want ErrNotHeld", err)
		}
		if _, err := engine.Get(t.Context(), "default", key); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("get returns %v, want ErrNotHeld", err)
		}
	})
}

// The read takes until the caller has left, and the lock has another holder by then.
func TestAForcedReleaseBeginsNothingAfterItsCallerHasLeft(t *testing.T) {
	for title, startForcing := range map[string]func(*testing.T, *etcd) *engine.Engine{
		"by the operator": start,
		"by a program": func(t *testing.T, etcd *etcd) *engine.Engine {
			t.Helper()
			return startAdmitted(t, &admitting{etcd: etcd, user: "worker", limits: rules.DefaultLimits()})
		},
	} {
		bubbleOf(t, title, func(t *testing.T) {
			etcd := newEtcd()
			forcing, holding := startForcing(t, etcd), start(t, etcd)
			ctx, leave := context.WithCancel(t.Context())
			etcd.inject(faults{before: func(verb string) error {
				if verb == "get" {
					etcd.inject(faults{})
					leave()
					_, err := holding.Acquire(t.Context(), "default", by("b"))
					return err
				}
				return nil
			}})
			if err := forcing.ForceRelease(ctx, "default", key, "stuck"); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want the error of the context", err)
			}
			if made := etcd.made(); !slices.Equal(made, []string{"get", "create"}) || etcd.owner(name) != "b" {
				t.Errorf("requests %v, then the lock is held by %q", made, etcd.owner(name))
			}
		})
	}
}

// Whenever the lock is handed on, before the read or between it and a write, a forced release of the grant before leaves
// the next holder alone.
func TestAForcedReleaseOfAGrantLeavesTheNextOneAlone(t *testing.T) {
	byProgram := func(t *testing.T, etcd *etcd) *engine.Engine {
		t.Helper()
		return startAdmitted(t, &admitting{etcd: etcd, user: "worker", limits: rules.DefaultLimits()})
	}
	for _, test := range []struct {
		title        string
		startForcing func(*testing.T, *etcd) *engine.Engine
		requests     []string
	}{
		{"by the operator", start, []string{"get", "delete"}},
		{"by a program", byProgram, []string{"get", "update", "delete"}},
	} {
		for _, at := range test.requests {
			bubbleOf(t, test.title+", before the "+at, func(t *testing.T) {
				etcd := newEtcd()
				forcing, holding := test.startForcing(t, etcd), start(t, etcd)
				granted, err := holding.Acquire(t.Context(), "default", by("a"))
				if err != nil {
					t.Fatal(err)
				}
				token, err := granted.FencingToken()
				if err != nil {
					t.Fatal(err)
				}
				next := by("b")
				next.Wait = time.Minute
				got := make(chan error, 1)
				go func() {
					_, err := holding.Acquire(t.Context(), "default", next)
					got <- err
				}()
				synctest.Wait()
				etcd.inject(faults{before: func(verb string) error {
					if verb != at {
						return nil
					}
					etcd.inject(faults{})
					return holding.Release(t.Context(), "default", key, lock.Proof{Owner: "a"})
				}})
				err = forcing.ForceRelease(t.Context(), "default", key, "stuck", lock.Precondition{FencingToken: token})
				if !errors.Is(err, lock.ErrOtherGrant) {
					t.Errorf("got %v, want ErrOtherGrant", err)
				}
				if err := <-got; err != nil || etcd.owner(name) != "b" {
					t.Errorf("the next caller got %v, and the lock is held by %q", err, etcd.owner(name))
				}
			})
		}
	}
}

// The reason of a forced release must not stay on a lock that goes on.
func TestAForcedReleaseThatHasGivenItsReasonIsCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine := startAdmitted(t, &admitting{etcd: etcd, user: "worker", limits: rules.DefaultLimits()})
		acquire(t, engine, by("a"))
		ctx, leave := context.WithCancel(t.Context())
		etcd.inject(faults{after: func(verb string) error {
			if verb == "update" {
				leave()
			}
			return nil
		}})
		if err := engine.ForceRelease(ctx, "default", key, "stuck"); err != nil {
			t.Error(err)
		}
		etcd.mustBeFree(t)
	})
}

func TestAcquireInANamespaceThatDoesNotExist(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		etcd.inject(faults{before: once("create", apierrors.NewNotFound(v1alpha1.Resource("namespaces"), "nowhere"))})
		if _, err := engine.Acquire(t.Context(), "nowhere", by("a")); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("got %v, want ErrInvalid", err)
		}
	})
}
