package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

func TestListReturnsHeldLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := start(t, newEtcd())
		for key, owner := range map[string]string{"c": "one", "a": "one", "b": "two", "gone": "one"} {
			request := by(owner)
			request.Key = key
			if key == "gone" {
				request.TTL = time.Second
			}
			acquire(t, engine, request)
		}
		pass(2 * time.Second)
		for owner, want := range map[string][]string{"": {"a", "b", "c"}, "one": {"a", "c"}, "none": nil} {
			locks, err := engine.List(t.Context(), "default", lock.Filter{Owner: owner})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for index := range locks {
				got = append(got, locks[index].Name)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("of owner %q (-want +got):\n%s", owner, diff)
			}
		}
	})
}

func TestWatchSendsTheLatestState(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		ctx, cancel := context.WithCancel(t.Context())
		changes, err := engine.Watch(ctx, "default", key)
		if err != nil {
			t.Fatal(err)
		}
		if first := <-changes; !first.IsGone || first.Lock != nil {
			t.Errorf("first %+v, want a free lock", first)
		}
		acquire(t, engine, by("a"))
		renew(t, engine)
		if change := <-changes; change.IsGone || change.Lock.ResourceVersion != etcd.version(name) {
			t.Errorf("got %+v, want the renewed lock", change)
		}
		release(t, engine, "a")
		if change := <-changes; !change.IsGone || change.Lock.Spec.Owner != "a" {
			t.Errorf("got %+v, want the end of the lock", change)
		}
		cancel()
		if _, isOpen := <-changes; isOpen {
			t.Error("the channel is open after its context ended")
		}
	})
}

func TestWatchEndsWithTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, stop := startStoppable(t, newEtcd())
		changes, err := engine.Watch(t.Context(), "default", key)
		if err != nil {
			t.Fatal(err)
		}
		<-changes
		stop()
		if _, isOpen := <-changes; isOpen {
			t.Error("the channel is open after the engine has stopped")
		}
		if late, err := engine.Watch(t.Context(), "default", key); err != nil {
			t.Error(err)
		} else if _, isOpen := <-late; isOpen {
			t.Error("a channel was opened after the engine had stopped")
		}
	})
}

func TestWatchNeedsAnInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine := startWith(t, engine.Options{Objects: etcd.locks, Limits: rules.DefaultLimits()})
		if _, err := engine.Watch(t.Context(), "default", key); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("got %v, want ErrUnsupported", err)
		}
	})
}

func TestWaitersReadTheLockWithoutAnInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine := startWith(t, engine.Options{Objects: etcd.locks, Limits: rules.DefaultLimits()})
		other := start(t, etcd)
		acquire(t, other, by("a"))
		answers := queued(t, engine, waiting("b", time.Minute))
		pass(10 * time.Second)
		release(t, other, "a")
		begin := time.Now()
		mustGet(t, answers)
		if waited := time.Since(begin); waited > time.Second {
			t.Errorf("noticed after %v, want a second at most", waited)
		}
	})
}
