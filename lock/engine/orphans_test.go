package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
)

// unanswered makes acquires whose writes go unanswered, and returns what the last one sent.
func unanswered(t *testing.T, etcd *etcd, engine *engine.Engine, requests ...lock.Request) *v1alpha1.Lock {
	t.Helper()
	etcd.inject(outage("create"))
	var callers sync.WaitGroup
	for _, request := range requests {
		callers.Go(func() {
			if _, err := engine.Acquire(t.Context(), "default", request); !errors.Is(err, lock.ErrUnavailable) {
				t.Errorf("got %v, want ErrUnavailable", err)
			}
		})
	}
	callers.Wait()
	return etcd.sent()
}

func forKey(key string) lock.Request {
	request := by(key)
	request.Key, request.TTL = key, time.Hour
	return request
}

// TestALateGrantAmongThousandsThatNeverHappened is about the time after an outage: each request
// takes 20 ms, so that a lookup of each grant would take a minute.
func TestALateGrantAmongThousandsThatNeverHappened(t *testing.T) {
	const others, bound = 12_000, 7 * time.Second
	for title, lateFirst := range map[string]bool{"first": true, "last": false} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				etcd := newEtcd()
				engine := start(t, etcd)
				requests := make([]lock.Request, others)
				for i := range requests {
					requests[i] = forKey(fmt.Sprintf("other-%d", i))
				}
				var late *v1alpha1.Lock
				if lateFirst {
					late = unanswered(t, etcd, engine, forKey("late"))
				}
				unanswered(t, etcd, engine, requests...)
				if !lateFirst {
					late = unanswered(t, etcd, engine, forKey("late"))
				}
				etcd.made()
				etcd.inject(faults{before: func(string) error {
					pass(20 * time.Millisecond)
					return nil
				}})
				pass(20 * time.Second)
				if _, err := etcd.Create(context.Background(), late, metav1.CreateOptions{}); err != nil { //nolint:usetesting // by the API server
					t.Fatal(err)
				}
				pass(bound)
				if owner := etcd.owner(late.Name); owner != "" {
					t.Errorf("%q holds its lock %s after the write that went unanswered happened", owner, bound)
				}
				passOrphanWindow()
				made := len(etcd.made())
				if made > 2000 {
					t.Errorf("%d requests to look for %d grants", made, others)
				}
				pass(time.Minute)
				if again := len(etcd.made()); again != 0 {
					t.Errorf("%d requests after the window for late writes", again)
				}
			})
		})
	}
}

func TestASearchForLateGrantsThatFailedIsRepeatedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine := start(t, etcd)
		requests := make([]lock.Request, 100) // More than are looked up one by one.
		for i := range requests {
			requests[i] = forKey(fmt.Sprintf("other-%d", i))
		}
		unanswered(t, etcd, engine, requests...)
		late := unanswered(t, etcd, engine, forKey("late"))
		var failed atomic.Int32
		etcd.inject(faults{before: func(verb string) error {
			if verb == "list" && failed.Load() < 3 {
				failed.Add(1)
				return apierrors.NewServiceUnavailable("away")
			}
			return nil
		}})
		for range 3000 {
			if failed.Load() == 3 {
				break
			}
			pass(10 * time.Millisecond)
		}
		if failed.Load() < 3 {
			t.Fatalf("%d lists within half a minute", failed.Load())
		}
		if _, err := etcd.Create(context.Background(), late, metav1.CreateOptions{}); err != nil { //nolint:usetesting // by the API server
			t.Fatal(err)
		}
		pass(1100 * time.Millisecond)
		if owner := etcd.owner(late.Name); owner != "" {
			t.Errorf("%q holds its lock a second after the last list that failed", owner)
		}
	})
}

// TestManyOrphansEndWithTheEngine is about an engine that stops before it has looked for them.
func TestManyOrphansEndWithTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine, stop := startStoppable(t, etcd)
		requests := make([]lock.Request, 200)
		for i := range requests {
			requests[i] = forKey(fmt.Sprintf("other-%d", i))
		}
		unanswered(t, etcd, engine, requests...)
		late := unanswered(t, etcd, engine, forKey("late"))
		etcd.inject(faults{})
		if _, err := etcd.Create(t.Context(), late, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		stop()
		if owner := etcd.owner(late.Name); owner != "" {
			t.Errorf("%q holds its lock after the end of the engine", owner)
		}
	})
}
