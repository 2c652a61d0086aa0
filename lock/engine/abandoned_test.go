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

// mustBeUnavailable acquires for an hour, and gets no answer.
func mustBeUnavailable(t *testing.T, engine *engine.Engine, owner string) {
	t.Helper()
	request := by(owner)
	request.TTL = time.Hour
	if _, err := engine.Acquire(t.Context(), "default", request); !errors.Is(err, lock.ErrUnavailable) {
		t.Fatalf("got %v, want ErrUnavailable", err)
	}
}

// The API server stores a write only after it has answered that it did not happen.
func TestALateWriteIsCleanedUp(t *testing.T) {
	afterOutage := func(away time.Duration) func(*testing.T, *etcd, *engine.Engine) *v1alpha1.Lock {
		return func(t *testing.T, etcd *etcd, engine *engine.Engine) *v1alpha1.Lock {
			t.Helper()
			etcd.inject(outage("create"))
			mustBeUnavailable(t, engine, "late")
			pass(away)
			return etcd.sent()
		}
	}
	// loseFirst loses the first write, and does something else in its place.
	loseFirst := func(etcd *etcd, instead func()) (sent **v1alpha1.Lock) {
		late := new(*v1alpha1.Lock)
		etcd.inject(faults{before: func(string) error {
			*late = etcd.sent()
			etcd.inject(faults{})
			instead()
			return errLostAnswer
		}})
		return late
	}
	cases := map[string]func(*testing.T, *etcd, *engine.Engine) (late *v1alpha1.Lock){
		"after a short outage": afterOutage(0),
		"after a long outage":  afterOutage(12 * time.Second),
		"to an object that exists": func(t *testing.T, etcd *etcd, engine *engine.Engine) *v1alpha1.Lock {
			t.Helper()
			mustAcquire(t, engine, "a", time.Second)
			pass(time.Minute)
			isLost := false
			etcd.inject(faults{before: func(verb string) error {
				switch {
				case verb == "update":
					isLost = true
					return errLostAnswer
				case isLost:
					return errRefused
				}
				return nil
			}})
			mustBeUnavailable(t, engine, "late")
			return etcd.sent()
		},
		"after a rival that it lost against has released the lock": func(t *testing.T, etcd *etcd, engine *engine.Engine) *v1alpha1.Lock {
			t.Helper()
			rival := start(t, etcd)
			late := loseFirst(etcd, func() { mustAcquire(t, rival, "rival", time.Hour) })
			request := by("late")
			request.TTL = time.Hour
			if _, err := engine.Acquire(t.Context(), "default", request); !errors.Is(err, lock.ErrHeld) {
				t.Fatalf("got %v, want ErrHeld", err)
			}
			release(t, rival, "rival")
			return *late
		},
		"after the grant of the next write was released": func(t *testing.T, etcd *etcd, engine *engine.Engine) *v1alpha1.Lock {
			t.Helper()
			late := loseFirst(etcd, func() {})
			mustAcquire(t, engine, "late", time.Hour)
			release(t, engine, "late")
			return *late
		},
	}
	for title, lose := range cases {
		bubbles(t, title, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
			late := lose(t, etcd, engine)
			etcd.inject(faults{})
			pass(500 * time.Millisecond)
			store := etcd.Create
			if late.ResourceVersion != "" {
				store = func(ctx context.Context, late *v1alpha1.Lock, _ metav1.CreateOptions) (*v1alpha1.Lock, error) {
					return etcd.Update(ctx, late, metav1.UpdateOptions{})
				}
			}
			if _, err := store(t.Context(), late, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			passOrphanWindow()
			if owner := etcd.owner(name); owner == "late" {
				t.Error("the late grant is still held")
			}
		})
	}
}

// The owner acquires again while the engine still looks for its abandoned grant.
func TestAbandonedGrantDoesNotEndALaterOne(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
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

func TestAServerThatFailsIsUnavailableAndNotAskedWithoutPause(t *testing.T) {
	for _, verb := range []string{"create", "delete"} {
		bubbles(t, verb, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
			if verb == "delete" {
				mustAcquire(t, engine, "a", time.Hour)
			}
			etcd.made()
			etcd.inject(faults{before: func(got string) error {
				if got == verb {
					return apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
				}
				return nil
			}})
			var err error
			if verb == "create" {
				_, err = engine.Acquire(t.Context(), "default", by("a"))
			} else {
				err = engine.Release(t.Context(), "default", key, lock.Proof{Owner: "a"})
			}
			if !errors.Is(err, lock.ErrUnavailable) {
				t.Errorf("got %v, want ErrUnavailable", err)
			}
			if requests := len(etcd.made()); requests > 40 {
				t.Errorf("%d requests to a server that does not answer", requests)
			}
		})
	}
}

// The object is deleted between the read and the write.
func TestTakeOverOfALockThatIsReapedMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
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
		etcd.mustBeFree(t)
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
