package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
)

// outage loses the answer to one kind of write and refuses everything else.
func outage(lost string) faults {
	return faults{before: func(verb string) error {
		if verb == lost {
			return errLostAnswer
		}
		return errRefused
	}}
}

// passOrphanWindow advances the clock until the engine looks for no orphan any more.
func passOrphanWindow() {
	pass(2 * time.Minute)
	synctest.Wait()
}

func mustAcquire(t *testing.T, engine *engine.Engine, owner string, ttl time.Duration) *v1alpha1.Lock {
	t.Helper()
	request := by(owner)
	request.TTL = ttl
	acquired, err := engine.Acquire(t.Context(), "default", request)
	if err != nil {
		t.Fatal(err)
	}
	return acquired
}

// The API server commits a create only after it has answered that there is no such lock.
func TestLateWriteIsCleanedUp(t *testing.T) {
	for name, away := range map[string]time.Duration{"after a short outage": 0, "after a long outage": 12 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				etcd := newEtcd()
				engine := start(t, etcd)
				etcd.inject(outage("create"))
				request := by("a")
				request.TTL = time.Hour
				if _, err := engine.Acquire(t.Context(), "default", request); !errors.Is(err, lock.ErrUnavailable) {
					t.Fatalf("got %v, want ErrUnavailable", err)
				}
				late := etcd.sent()
				pass(away)
				etcd.inject(faults{})
				pass(2 * time.Second)
				if _, err := etcd.Create(t.Context(), late, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				passOrphanWindow()
				if owner := etcd.owner("billing--report"); owner != "" {
					t.Errorf("the late grant is still held by %q", owner)
				}
			})
		})
	}
}

// TestLateTakeOverIsCleanedUp is the same for a write to an object that exists.
func TestLateTakeOverIsCleanedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine := start(t, etcd)
		mustAcquire(t, engine, "a", time.Second)
		pass(time.Minute)
		refused := false
		etcd.inject(faults{before: func(verb string) error {
			if verb == "update" {
				refused = true
				return errLostAnswer
			}
			if refused {
				return errRefused
			}
			return nil
		}})
		request := by("b")
		request.TTL = time.Hour
		if _, err := engine.Acquire(t.Context(), "default", request); !errors.Is(err, lock.ErrUnavailable) {
			t.Fatalf("got %v, want ErrUnavailable", err)
		}
		late := etcd.sent()
		etcd.inject(faults{})
		pass(500 * time.Millisecond)
		if _, err := etcd.Update(t.Context(), late, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		passOrphanWindow()
		if owner := etcd.owner(name); owner == "b" {
			t.Error("the late take-over still holds the lock")
		}
	})
}

// The create happens after the rival that it lost against has released the lock.
func TestLateWriteAfterARivalIsCleanedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		rival, engine := start(t, etcd), start(t, etcd)
		var late *v1alpha1.Lock
		etcd.inject(faults{before: func(string) error {
			late = etcd.sent()
			etcd.inject(faults{})
			mustAcquire(t, rival, "rival", time.Hour)
			return errLostAnswer
		}})
		request := by("a")
		request.TTL = time.Hour
		if _, err := engine.Acquire(t.Context(), "default", request); !errors.Is(err, lock.ErrHeld) {
			t.Fatalf("got %v, want ErrHeld", err)
		}
		if err := rival.Release(t.Context(), "default", key, lock.Proof{Owner: "rival"}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if _, err := etcd.Create(t.Context(), late, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		passOrphanWindow()
		if owner := etcd.owner(name); owner != "" {
			t.Errorf("the late grant is still held by %q", owner)
		}
	})
}

// The first write happens after the grant of the second one was released.
func TestLateWriteAfterASuccessIsCleanedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine := start(t, etcd)
		var late *v1alpha1.Lock
		etcd.inject(faults{before: func(string) error {
			late = etcd.sent()
			etcd.inject(faults{})
			return errLostAnswer
		}})
		mustAcquire(t, engine, "a", time.Hour)
		if err := engine.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}); err != nil {
			t.Fatal(err)
		}
		if _, err := etcd.Create(t.Context(), late, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		passOrphanWindow()
		if owner := etcd.owner(name); owner != "" {
			t.Errorf("the late grant is still held by %q", owner)
		}
	})
}

// The owner acquires again while the engine still looks for its abandoned grant.
func TestAbandonedGrantDoesNotEndALaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine := start(t, etcd)
		etcd.inject(outage("create"))
		if _, err := engine.Acquire(t.Context(), "default", by("a")); !errors.Is(err, lock.ErrUnavailable) {
			t.Fatalf("got %v, want ErrUnavailable", err)
		}
		etcd.inject(faults{})
		mustAcquire(t, engine, "a", time.Hour)
		passOrphanWindow()
		if owner := etcd.owner(name); owner != "a" {
			t.Errorf("the second grant was ended with the first: held by %q", owner)
		}
	})
}

func TestFailingServerIsUnavailableNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine := start(t, etcd)
		internal := apierrors.NewInternalError(errors.New("another webhook fails"))
		etcd.inject(faults{before: func(verb string) error {
			if verb == "create" {
				return internal
			}
			return nil
		}})
		if _, err := engine.Acquire(t.Context(), "default", by("a")); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		if requests := len(etcd.made()); requests > 40 {
			t.Errorf("%d requests to a server that does not answer", requests)
		}
	})
}

func TestFailingDeleteIsNotRepeatedWithoutPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine := start(t, etcd)
		mustAcquire(t, engine, "a", time.Hour)
		internal := apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
		etcd.made()
		etcd.inject(faults{before: func(verb string) error {
			if verb == "delete" {
				return internal
			}
			return nil
		}})
		if err := engine.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		if requests := len(etcd.made()); requests > 40 {
			t.Errorf("%d requests to a server that does not answer", requests)
		}
	})
}

// The answer arrives after the lock has expired.
func TestAcquireThatOutlastsItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine := start(t, etcd)
		etcd.inject(faults{before: func(verb string) error {
			if verb == "create" {
				pass(3 * time.Second)
			}
			return nil
		}})
		request := by("a")
		request.TTL = 2 * time.Second
		if _, err := engine.Acquire(t.Context(), "default", request); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		if owner := etcd.owner(name); owner != "" {
			t.Errorf("the grant of %q is left", owner)
		}
	})
}

// The object is deleted between the read and the write.
func TestTakeOverOfALockThatIsReapedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine := start(t, etcd)
		mustAcquire(t, engine, "a", time.Second)
		pass(time.Minute)
		etcd.inject(faults{before: func(verb string) error {
			if verb == "update" {
				etcd.remove()
			}
			return nil
		}})
		if acquired := mustAcquire(t, engine, "b", time.Second); acquired.Spec.Owner != "b" {
			t.Errorf("acquired %v", acquired)
		}
	})
}

// The delete happens, and another caller acquires before the engine reads again.
func TestReleaseWhoseAnswerIsLostToTheNextHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine, next := start(t, etcd), start(t, etcd)
		mustAcquire(t, engine, "a", time.Hour)
		etcd.inject(faults{after: func(verb string) error {
			if verb != "delete" {
				return nil
			}
			etcd.inject(faults{})
			mustAcquire(t, next, "b", time.Hour)
			return errLostAnswer
		}})
		if err := engine.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}); err != nil {
			t.Errorf("got %v, want the release to be found done", err)
		}
		passOrphanWindow()
		if owner := etcd.owner(name); owner != "b" {
			t.Errorf("held by %q, want the next holder", owner)
		}
	})
}

// The engine stops while the create of a caller that has left is under way.
func TestStoppingEngineEndsGrantsOfCallersThatHaveLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine, stop := startStoppable(t, etcd)

		calling, hangUp := context.WithCancel(t.Context())
		etcd.inject(faults{after: func(verb string) error {
			if verb == "create" {
				hangUp()
				pass(time.Second)
			}
			return nil
		}})
		if _, err := engine.Acquire(calling, "default", by("a")); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
		stop()
		if owner := etcd.owner(name); owner != "" {
			t.Errorf("a caller that has gone holds the lock as %q", owner)
		}
		if _, err := engine.Acquire(t.Context(), "default", by("b")); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("a stopped engine acquires: %v", err)
		}
	})
}

// The engine stops with many grants to end and an API server that hangs.
func TestStoppingEngineDoesNotWaitForEachGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine, stop := startStoppable(t, etcd)
		etcd.inject(faults{before: func(string) error {
			pass(lock.OperationTimeout)
			return errLostAnswer
		}})
		callers := make(chan error, 50)
		for range cap(callers) {
			go func() {
				_, err := engine.Acquire(t.Context(), "default", by(""))
				callers <- err
			}()
		}
		for range cap(callers) {
			if err := <-callers; !errors.Is(err, lock.ErrUnavailable) {
				t.Errorf("got %v, want ErrUnavailable", err)
			}
		}
		begin := time.Now()
		stop()
		if took := time.Since(begin); took > 3*lock.OperationTimeout {
			t.Errorf("took %s to stop", took)
		}
	})
}
