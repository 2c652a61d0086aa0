package jobgate

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/jobs"
)

func (w *world) createMany(number int, change change) (created []*batchv1.Job) {
	w.t.Helper()
	for i := range number {
		created = append(created, w.create(fmt.Sprintf("job-%03d", i), change))
	}
	return created
}

func (w *world) decided(created []*batchv1.Job) (number int) {
	w.t.Helper()
	for _, job := range created {
		if jobs.IsDecided(w.read(job)) {
			number++
		}
	}
	return number
}

func TestManyJobsAreEndedInTurns(t *testing.T) {
	cases := map[string]change{"overdue": annotated(v1alpha1.LockWaitTimeoutAnnotation, "1s"), "that do not wait": skip}
	for name, over := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.grantTo("alice")
			created := w.createMany(2*maxFinishesPerPass+1, over)
			w.create("z")
			w.clock.Step(2 * time.Second)
			for _, want := range []int{maxFinishesPerPass, 2 * maxFinishesPerPass, len(created)} {
				result, err := w.tryPass()
				if err != nil {
					t.Fatal(err)
				}
				if got := w.decided(created); got != want {
					t.Fatalf("%d Jobs are ended, want %d", got, want)
				}
				if want < len(created) && result.RequeueAfter != time.Millisecond {
					t.Errorf("comes back to the others in %s", result.RequeueAfter)
				}
				if waiter := w.reconciler.state(theLock).waiter; waiter == nil || waiter.job != "z" {
					t.Error("the first Job that waits does not contend")
				}
			}
		})
	}
}

// Every decision takes a sixth of the ttl here.
func TestTheLockIsRenewedWhileManyJobsAreEnded(t *testing.T) {
	w := newWorld(t)
	runs := w.create("a", annotated(v1alpha1.LockTTLAnnotation, "30s"))
	w.pass(1)
	w.awaitContender()
	created := w.createMany(2*maxFinishesPerPass, annotated(v1alpha1.LockWaitTimeoutAnnotation, "1s"))
	w.clock.Step(time.Second)
	w.refuse = func(_ client.Object, isStatus bool) error {
		if isStatus {
			w.clock.Step(5 * time.Second)
		}
		return nil
	}
	for passes := 0; w.decided(created) < len(created); passes++ {
		if passes > len(created) {
			t.Fatalf("%d of %d Jobs are ended", w.decided(created), len(created))
		}
		w.pass(1)
		if w.holder() != "a" || !w.isRunning(runs) {
			t.Fatalf("%q holds the lock when %d Jobs are ended", w.holder(), w.decided(created))
		}
	}
}

func TestJobsThatCannotBeEndedDelayNoOthers(t *testing.T) {
	w := newWorld(t)
	w.grantTo("alice")
	created := w.createMany(maxFinishesPerPass, skip)
	last := w.create("z", skip)
	w.refuse = func(job client.Object, isStatus bool) error {
		if isStatus && strings.HasPrefix(job.GetName(), "job-") {
			return errPolicy
		}
		return nil
	}
	w.wantError()
	result, err := w.tryPass()
	if err != nil || !jobs.IsDecided(w.read(last)) {
		t.Fatalf("the last one is not ended: %v", err)
	}
	if result.RequeueAfter > maxBackoff {
		t.Errorf("comes back to the others in %s", result.RequeueAfter)
	}
	w.refuse = nil
	w.clock.Step(maxBackoff)
	w.pass(1)
	if got := w.decided(created); got != len(created) {
		t.Errorf("%d of the others are ended", got)
	}
}

func TestAHeldLockIsTriedOncePerPass(t *testing.T) {
	w := newWorld(t)
	w.grantTo("alice")
	created := w.createMany(3, skip)
	tries := 0
	w.engine.acquire = func(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error) {
		tries++
		return w.locks.Acquire(ctx, namespace, request)
	}
	w.pass(1)
	if tries != 1 || w.decided(created) != len(created) {
		t.Errorf("tried %d times, %d Jobs are ended", tries, w.decided(created))
	}
}
