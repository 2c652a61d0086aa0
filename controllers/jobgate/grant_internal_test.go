package jobgate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/rules"
)

var errOutage = fmt.Errorf("renew: %w", lock.ErrUnavailable)

// started returns a world in which a Job runs, and the Job.
func started(t *testing.T) (*world, *batchv1.Job) {
	t.Helper()
	w := newWorld(t)
	job := w.create("a")
	w.grant(job)
	w.pass(2)
	if !w.isRunning(job) {
		t.Fatal("the Job was not started")
	}
	return w, job
}

func TestRenewalThatFailsForAWhile(t *testing.T) {
	w, job := started(t)
	w.engine.renewing = errOutage
	w.clock.Step(jobs.DefaultTTL / 2)
	w.wantError()
	w.clock.Step(jobs.DefaultTTL / 4)
	w.wantError()
	w.engine.renewing = nil
	w.pass(1)
	if left := w.held().Spec.ExpireTime.Sub(w.clock.Now()); left != jobs.DefaultTTL {
		t.Errorf("the lock lasts for %s", left)
	}
	if !w.isRunning(job) {
		t.Error("suspended in between")
	}
}

func TestRenewalThatFailsKeepsNothingElseFromBeingDone(t *testing.T) {
	w, job := started(t)
	w.engine.renewing = errOutage
	w.clock.Step(jobs.DefaultTTL / 2)
	w.complete(job, false)
	w.create("b")
	w.wantError()
	if w.holder() == "a" {
		t.Error("not released")
	}
	w.awaitItem()
	w.pass(1)
	if !slices.Equal(w.starts, []string{"a", "b"}) {
		t.Errorf("started %v", w.starts)
	}
}

func TestRenewalOfALockThatIsNotHeld(t *testing.T) {
	w, job := started(t)
	// It is suspended only when the API server says so, too.
	w.engine.renewing, w.engine.getting = lock.ErrNotHeld, errOutage
	w.clock.Step(jobs.DefaultTTL / 2)
	w.wantError()
	if !w.isRunning(job) {
		t.Fatal("suspended before the live check")
	}
	if err := w.locks.ForceRelease(t.Context(), space, key, "test"); err != nil {
		t.Fatal(err)
	}
	w.engine.renewing, w.engine.getting = nil, nil
	w.told()
	w.pass(1)
	if w.isRunning(job) {
		t.Error("runs on without its lock")
	}
	if said := strings.Join(w.told(), "\n"); !strings.Contains(said, "LockLost") {
		t.Errorf("told %q", said)
	}
}

func TestHolderIsUnknownForAWhile(t *testing.T) {
	w, job := started(t)
	w.engine.getting = errOutage
	w.clock.Step(jobs.DefaultTTL + time.Second) // The lock is in doubt.
	w.wantError()
	if !w.isRunning(job) {
		t.Error("suspended by guess")
	}
}

func TestNoJobIsEndedWhileTheHolderIsUnknown(t *testing.T) {
	w := newWorld(t)
	job := w.create("a", skip)
	w.grant(job)
	w.looking = errOutage
	w.wantError()
	w.looking = nil
	w.pass(1)
	if !w.isRunning(job) {
		t.Error("skipped though it holds the lock")
	}
}

func TestLockExpiresBeforeTheStart(t *testing.T) {
	w := newWorld(t)
	job := w.create("a")
	w.grant(job)
	w.clock.Step(time.Second)
	held, err := w.locks.Renew(t.Context(), space, key, lock.Proof{Owner: "from-a", Holder: operator}, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.engine.Backend = afterGet{w.locks, func() { w.clock.Step(held.Spec.TTL.Duration + time.Second) }}
	if _, err := w.tryPass(); err == nil {
		t.Error("no error")
	}
	if w.isRunning(job) {
		t.Error("started without the lock")
	}
	w.engine.Backend = w.locks
	w.pass(1)
	w.awaitContender()
	if !w.isRunning(job) || w.holder() != "a" {
		t.Errorf("started %v, and %q holds the lock", w.starts, w.holder())
	}
}

func TestLeadershipIsLost(t *testing.T) {
	w, _ := started(t)
	w.create("b")
	w.pass(1)
	w.awaitWaiters(1)
	w.leadership.loseGrant()
	w.pass(1)
	w.awaitWaiters(0)
	w.reconciler.background.Wait()
	if w.reconciler.hasState(theLock) {
		t.Error("the slot is kept")
	}
	if w.holder() != "a" {
		t.Error("the lock is not left to the next leader")
	}
	writes := len(w.starts)
	w.pass(1)
	if w.reconciler.hasState(theLock) || len(w.starts) != writes {
		t.Error("acts without leading")
	}
}

func TestAFailedAcquireIsRepeatedByAnotherPass(t *testing.T) {
	w := newWorld(t)
	job := w.create("a")
	w.engine.acquire = func(context.Context, string, lock.Request) (*v1alpha1.Lock, error) { return nil, errOutage }
	w.pass(1)
	w.awaitItem()
	w.wantError()
	if w.reconciler.state(theLock).waiter != nil {
		t.Error("asked again without a pause")
	}
	w.engine.acquire = nil
	w.pass(1)
	w.awaitContender()
	if !w.isRunning(job) {
		t.Error("not asked again")
	}
}

func TestAGrantIsOfOneHolder(t *testing.T) {
	w := newWorld(t)
	granted := w.grant(w.create("a"))
	held, foreign := &grant{lock: granted}, granted.DeepCopy()
	foreign.Spec.Holder = "mallory"
	if !held.isIn(granted.DeepCopy()) || held.isIn(foreign) {
		t.Error("the holder makes no difference")
	}
}

// The cache may be behind, so the write must prove the holder.
func TestALockOfAnotherHolderWithTheSameOwnerTokenIsLeftAlone(t *testing.T) {
	for name, do := range map[string]func(w *world, job *batchv1.Job){
		"when the lock must be renewed": func(w *world, _ *batchv1.Job) { w.clock.Step(jobs.DefaultTTL / 2) },
		"when the Job is complete":      func(w *world, job *batchv1.Job) { w.complete(job, false) },
	} {
		t.Run(name, func(t *testing.T) {
			w, job := started(t)
			do(w, job)
			var foreign *v1alpha1.Lock
			w.afterLook = func() {
				w.afterLook = nil
				stolen := rules.Acquisition{Scope: v1alpha1.ScopeGlobal, Key: "key", TTL: time.Hour, Holder: "mallory", Owner: w.held().Spec.Owner}
				if err := w.locks.ForceRelease(t.Context(), space, key, "test"); err != nil {
					t.Error(err)
				}
				var err error
				if foreign, err = w.locks.Acquire(t.Context(), space, lock.Request{Acquisition: stolen}); err != nil {
					t.Error(err)
				}
			}
			w.pass(1)
			if held := w.held(); held == nil || held.ResourceVersion != foreign.ResourceVersion {
				t.Errorf("the lock of another holder was written: %v", held)
			}
			if w.reconciler.state(theLock).grant != nil {
				t.Error("taken for the lock of the Job")
			}
		})
	}
}
