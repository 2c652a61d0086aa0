package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// A caller must not wait beside a lock of which its engine has been told that it is gone, though the watch has lost that.
func TestWhateverFindsALockGoneTellsThoseWhoWait(t *testing.T) {
	proof := lock.Proof{Owner: "a"}
	renews := func(ctx context.Context, engine *engine.Engine) error {
		_, err := engine.Renew(ctx, "default", key, proof, 0)
		return err
	}
	releases := func(ctx context.Context, engine *engine.Engine) error {
		return engine.Release(ctx, "default", key, proof)
	}
	cases := map[string]struct {
		// isElsewhere says that another engine has granted the lock.
		isElsewhere bool
		finds       func(context.Context, *engine.Engine) error
	}{
		"a renewal":               {false, renews},
		"a renewal after a read":  {true, renews},
		"a renewal that is lost":  {false, renews},
		"a hand-off":              {false, releases},
		"a hand-off that is lost": {false, releases},
		"a release":               {true, releases},
		"a forced release": {true, func(ctx context.Context, engine *engine.Engine) error {
			return engine.ForceRelease(ctx, "default", key, "stuck")
		}},
		"a look": {true, func(ctx context.Context, engine *engine.Engine) error {
			_, err := engine.Get(ctx, "default", key)
			return err
		}},
		"the end of an abandoned grant": {true, func(_ context.Context, engine *engine.Engine) error {
			engine.Disown("default", rules.Acquisition{Key: "billing:report", Owner: "z", Holder: "alice", ID: rules.NthTry("id", 2)})
			return lock.ErrNotHeld
		}},
	}
	for title, test := range cases {
		bubbles(t, title, func(t *testing.T, etcd *etcd, here *engine.Engine) {
			granting := here
			if test.isElsewhere {
				granting = start(t, etcd)
			}
			acquire(t, granting, by("a"))
			answers := queued(t, here, waiting("b", time.Hour))
			etcd.mute(true)
			etcd.remove()
			isLost := strings.HasSuffix(title, "that is lost")
			if isLost {
				etcd.inject(faults{before: once("update", errLostAnswer)})
			}
			begun := time.Now()
			err := test.finds(t.Context(), here)
			// The one that waits may have the lock before a renewal looks, and a release that is lost may have ended it.
			if !errors.Is(err, lock.ErrNotHeld) && !errors.Is(err, lock.ErrOwnerMismatch) && (err != nil || !isLost) {
				t.Errorf("got %v, want ErrNotHeld", err)
			}
			mustGet(t, answers)
			if took := time.Since(begun); took > 500*time.Millisecond || took > 100*time.Millisecond && !isLost {
				t.Errorf("acquired %v after the answer", took)
			}
			passOrphanWindow()
		})
	}
}

// A delete may find nothing, and a queue may begin meanwhile that goes by the grant.
func TestADeleteThatFindsNothingTellsThoseWhoHaveCome(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, here *engine.Engine) {
		acquire(t, here, by("a"))
		answers := make(chan answer, 1)
		etcd.inject(faults{before: func(verb string) error {
			if verb == "delete" {
				etcd.mute(true)
				etcd.remove()
				queueUp(t.Context(), t, here, waiting("b", time.Hour), answers)
			}
			return nil
		}})
		begun := time.Now()
		if err := here.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}); err != nil && !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("got %v", err)
		}
		if got := <-answers; got.err != nil || time.Since(begun) > 200*time.Millisecond {
			t.Errorf("after %s: %v", time.Since(begun), got.err)
		}
	})
}

// carol is another holder.
func carol() lock.Request {
	request := by("c")
	request.Holder = "carol"
	return request
}

// A hand-off may find another holder under the name, and the watch may have lost both the end and the grant.
func TestAHandOffThatFindsAnotherHolderTellsThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		here, elsewhere := start(t, etcd), start(t, etcd)
		acquire(t, here, by("a"))
		answers := queued(t, here, waiting("b", 300*time.Millisecond))
		etcd.mute(true)
		etcd.remove()
		acquire(t, elsewhere, carol())
		err := here.Release(t.Context(), "default", key, lock.Proof{Owner: "a"})
		if !errors.Is(err, lock.ErrNotHeld) && !errors.Is(err, lock.ErrOwnerMismatch) {
			t.Errorf("got %v", err)
		}
		mustBeHeldByCarol(t, <-answers)
	})
}

func mustBeHeldByCarol(t *testing.T, got answer) {
	t.Helper()
	if held, ok := errors.AsType[*lock.HeldError](got.err); !ok || held.Holder != "carol" {
		t.Errorf("%s is told %v", got.owner, got.err)
	}
}

// The grant to a caller that has left is handed on, and may have been ended meanwhile.
func TestAGrantThatIsHandedOnAndFindsAnotherHolderTellsThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		here, elsewhere := start(t, etcd), start(t, etcd)
		acquire(t, here, by("a"))
		answers := make(chan answer, 2)
		leaving, leave := context.WithCancel(t.Context())
		queueUp(leaving, t, here, waiting("left", time.Hour), answers)
		queueUp(t.Context(), t, here, waiting("b", 300*time.Millisecond), answers)
		updates := 0
		etcd.inject(faults{before: func(verb string) error {
			if verb != "update" {
				return nil
			}
			updates++
			switch updates {
			case 1:
				leave()
				synctest.Wait()
			case 2:
				etcd.mute(true)
				etcd.remove()
				acquire(t, elsewhere, carol())
			}
			return nil
		}})
		release(t, here, "a")
		if got := <-answers; !errors.Is(got.err, context.Canceled) {
			t.Errorf("%s is told %v", got.owner, got.err)
		}
		mustBeHeldByCarol(t, <-answers)
		passOrphanWindow()
	})
}
