package engine_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

// TestALateGrantAmongThousandsThatNeverHappened is about the time after an outage.
func TestALateGrantAmongThousandsThatNeverHappened(t *testing.T) {
	const others = 4_000
	for title, test := range map[string]struct {
		// isEarly says that the write happens before the engine has given it up.
		isEarly, isShown bool
		// takes is how long a request takes.
		takes, bound time.Duration
	}{
		"that the watch shows":            {false, true, 200 * time.Millisecond, time.Second},
		"that the watch has shown before": {true, true, 20 * time.Millisecond, time.Second},
		"that the watch does not show":    {false, false, 20 * time.Millisecond, others / 200 * time.Second},
	} {
		bubbles(t, title, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
			requests := make([]lock.Request, others)
			for i := range requests {
				requests[i] = forKey(fmt.Sprintf("other-%d", i))
			}
			unanswered(t, etcd, engine, requests...)
			etcd.mute(!test.isShown)
			if test.isEarly {
				time.AfterFunc(time.Second, func() { etcd.happen(etcd.sent()) })
			}
			late := unanswered(t, etcd, engine, forKey("late"))
			etcd.inject(faults{before: func(string) error { pass(test.takes); return nil }})
			if !test.isEarly {
				pass(20 * time.Second)
				etcd.happen(late)
			}
			etcd.made()
			pass(test.bound)
			if owner := etcd.owner(late.Name); owner != "" {
				t.Errorf("%q holds its lock %s after the write that went unanswered happened", owner, test.bound)
			}
			pass(time.Minute)
			if made, most := len(etcd.made()), 200*int((test.bound+time.Minute)/time.Second)+100; made > most {
				t.Errorf("%d requests to look for %d grants, want at most 200 a second", made, others)
			}
			pass(5 * time.Minute)
			etcd.made()
			pass(time.Minute)
			if again := len(etcd.made()); again != 0 || engine.Waits().LookedFor != 0 {
				t.Errorf("%d requests after the window for late writes, for %d grants", again, engine.Waits().LookedFor)
			}
		})
	}
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
