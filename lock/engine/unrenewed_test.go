package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
)

// The write of a caller that was told of nothing happens late. The caller finds its lock and renews
// it through another replica before the engine looks for it.
func TestAGrantThatItsHolderHasRenewedStays(t *testing.T) {
	lateCreate := func(t *testing.T, etcd *etcd, first *engine.Engine) {
		t.Helper()
		etcd.inject(outage("create"))
		request := by("a")
		request.TTL = time.Hour
		if _, err := first.Acquire(t.Context(), "default", request); !errors.Is(err, lock.ErrUnavailable) {
			t.Fatalf("got %v, want ErrUnavailable", err)
		}
		late := etcd.sent()
		etcd.inject(faults{})
		pass(2 * time.Second)
		if _, err := etcd.Create(t.Context(), late, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	callerThatLeaves := func(t *testing.T, etcd *etcd, first *engine.Engine, renew func()) {
		t.Helper()
		calling, hangUp := context.WithCancel(t.Context())
		etcd.inject(faults{after: func(verb string) error {
			if verb == "create" {
				hangUp()
				pass(time.Second)
				renew()
			}
			return nil
		}})
		request := by("a")
		request.TTL = time.Hour
		if _, err := first.Acquire(calling, "default", request); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want context.Canceled", err)
		}
		pass(2 * time.Second)
	}
	unansweredRelease := func(t *testing.T, etcd *etcd, first *engine.Engine) {
		t.Helper()
		mustAcquire(t, first, "a", time.Hour)
		etcd.inject(outage("delete"))
		if err := first.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}); !errors.Is(err, lock.ErrUnavailable) {
			t.Fatalf("got %v, want ErrUnavailable", err)
		}
	}
	for title, happens := range map[string]func(t *testing.T, etcd *etcd, first *engine.Engine, renew func()){
		"after a late create": func(t *testing.T, etcd *etcd, first *engine.Engine, renew func()) {
			t.Helper()
			lateCreate(t, etcd, first)
			renew()
		},
		"after its caller has left": callerThatLeaves,
		"after a release without an answer": func(t *testing.T, etcd *etcd, first *engine.Engine, renew func()) {
			t.Helper()
			unansweredRelease(t, etcd, first)
			etcd.inject(faults{before: failing("delete", errRefused)})
			renew()
			etcd.inject(faults{})
		},
	} {
		bubbleOf(t, title, func(t *testing.T) {
			etcd := newEtcd()
			first, second := start(t, etcd), start(t, etcd)
			happens(t, etcd, first, func() {
				if _, err := second.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0); err != nil {
					t.Error(err)
				}
			})
			passOrphanWindow()
			if owner := etcd.owner(name); owner != "a" {
				t.Errorf("held by %q, want the holder that has renewed", owner)
			}
			if _, err := second.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0); err != nil {
				t.Errorf("the next renewal: %v", err)
			}
		})
	}
}

// A door takes a grant back only if its caller does not know of it.
func TestReleaseOfAnUnrenewedGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		first, second := start(t, etcd), start(t, etcd)
		proof := lock.Proof{Owner: "a", IsUnrenewed: true}
		mustAcquire(t, first, "a", time.Hour)
		if err := first.Release(t.Context(), "default", key, proof); err != nil {
			t.Errorf("a grant that was not renewed: %v", err)
		}
		for title, renewing := range map[string]*engine.Engine{"the same replica": first, "another replica": second} {
			mustAcquire(t, first, "a", time.Hour)
			pass(time.Second)
			renew(t, renewing)
			if err := first.Release(t.Context(), "default", key, proof); !errors.Is(err, lock.ErrNotHeld) {
				t.Errorf("renewed through %s: got %v, want ErrNotHeld", title, err)
			}
			if owner := etcd.owner(name); owner != "a" {
				t.Errorf("renewed through %s: held by %q", title, owner)
			}
			release(t, first, "a")
		}
	})
}

// The holder has found the grant of an unanswered acquire and has renewed it. That the lock looks
// expired to an engine whose clock is stepped meanwhile must not end it.
func TestAStepOfTheClockEndsNoGrantThatItsHolderHasRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		first, step := startSkewed(t, etcd)
		second := start(t, etcd)
		etcd.inject(outage("create"))
		request := by("a")
		request.TTL = 20 * time.Second
		if _, err := first.Acquire(t.Context(), "default", request); !errors.Is(err, lock.ErrUnavailable) {
			t.Fatalf("got %v", err)
		}
		late := etcd.sent()
		etcd.inject(faults{})
		pass(2 * time.Second)
		if _, err := etcd.Create(t.Context(), late, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		renew(t, second)
		var isStepped atomic.Bool
		etcd.inject(faults{after: func(verb string) error {
			if verb == "get" && isStepped.CompareAndSwap(false, true) {
				step(time.Minute)
			}
			return nil
		}})
		pass(7 * time.Second)
		if !isStepped.Load() {
			t.Error("the first engine has not looked for its grant")
		}
		if owner := etcd.owner(name); owner != "a" {
			t.Errorf("held by %q, want the holder that has renewed", owner)
		}
		etcd.inject(faults{})
		if _, err := second.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 0); err != nil {
			t.Errorf("next renewal: %v", err)
		}
	})
}
