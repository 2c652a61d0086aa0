package engine_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// startFull returns an engine that permits two locks in a namespace.
func startFull(t *testing.T, etcd *etcd) *engine.Engine {
	t.Helper()
	return startWith(t, engine.Options{
		Objects: etcd.locks, Limits: rules.DefaultLimits(), ClockSkewAllowance: time.Second, MaxPerNamespace: 2,
		Informer: etcd, Stream: engine.NewTestStream(t).WatchStream,
	})
}

func of(key, owner string) lock.Request {
	request := by(owner)
	request.Key = key
	return request
}

func TestAFullNamespaceTakesNoOtherLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine := startFull(t, etcd)
		acquire(t, engine, of("a", "1"))
		acquire(t, engine, by("2"))
		etcd.made()
		refused, isRefused := errors.AsType[*lock.RefusedError](func() error {
			_, err := engine.Acquire(t.Context(), "default", of("b", "3"))
			return err
		}())
		if !isRefused || !strings.Contains(refused.Reason, "namespace default has as many locks as it may have, 2") {
			t.Errorf("got %v", refused)
		}
		if diff := cmp.Diff([]string(nil), etcd.made()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		// What is held there is told as ever, renewed, released and taken again.
		if _, err := engine.Acquire(t.Context(), "default", of("a", "3")); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("a held lock: %v", err)
		}
		if _, err := engine.Renew(t.Context(), "default", key, lock.Proof{Owner: "2"}, 0); err != nil {
			t.Errorf("a renewal: %v", err)
		}
		release(t, engine, "2")
		synctest.Wait()
		acquire(t, engine, of("b", "3"))
	})
}

func TestAFullNamespaceHandsItsLocksOnAndOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine := startFull(t, etcd)
		acquire(t, engine, of("a", "1"))
		acquire(t, engine, by("2"))
		waiting := by("3")
		waiting.Wait = time.Minute
		next := make(chan error, 1)
		go func() {
			_, err := engine.Acquire(t.Context(), "default", waiting)
			next <- err
		}()
		synctest.Wait()
		release(t, engine, "2")
		if err := <-next; err != nil {
			t.Errorf("a hand-off: %v", err)
		}
		pass(time.Minute) // Both have expired, and no reaper runs.
		acquire(t, engine, by("4"))
	})
}

// A namespace may have more locks than it may have now. One that is full of expired locks still has room for
// each of their keys, also if the object of a lock cannot carry the next grant.
func TestAFullNamespaceReplacesAnExpiredLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		engine := startFull(t, etcd)
		acquire(t, engine, of("a", "1"))
		acquire(t, engine, by("2"))
		further := etcd.stored(v1alpha1.FullKeyOf("a").ObjectName()).DeepCopy()
		further.Name, further.UID = "further", "further"
		etcd.mu.Lock()
		etcd.store(further)
		etcd.mu.Unlock()
		etcd.own()
		pass(time.Minute) // All have expired, and no reaper runs.
		acquire(t, engine, by("3"))
		if _, err := engine.Acquire(t.Context(), "default", of("b", "4")); !errors.Is(err, lock.ErrRefused) {
			t.Errorf("a further key: %v", err)
		}
	})
}

// The informer may miss the beginning and the end of a lock, such as between two watches.
func TestALockThatTheInformerHasMissedTakesNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		full, other := startFull(t, etcd), start(t, etcd)
		synctest.Wait()
		etcd.mute(true)
		for _, key := range []string{"p", "q"} {
			acquire(t, full, of(key, key))
			asked := of(key, key)
			if err := other.Release(t.Context(), "default", asked.FullKey(), lock.Proof{Owner: key}); err != nil {
				t.Fatal(err)
			}
		}
		etcd.mute(false)
		acquire(t, other, of("s", "s"))
		acquire(t, full, of("r", "r"))
	})
}
