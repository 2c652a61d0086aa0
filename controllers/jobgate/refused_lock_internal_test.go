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

// refuseLock has the cluster refuse the lock to the Job a.
func (w *world) refuseLock(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error) {
	if request.Reason == "Job a" {
		return nil, &lock.RefusedError{Reason: "a policy says no"}
	}
	return w.locks.Acquire(ctx, namespace, request)
}

func TestAJobThatIsRefusedTheLockLeavesItToOthersAndIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	stuck, other := w.create("a"), w.create("b")
	w.engine.acquire = w.refuseLock
	w.pass(1)
	w.awaitItem()
	w.wantError()
	if said := strings.Join(w.told(), "\n"); !strings.Contains(said, "Warning LockRefused Leaves the lock to others for 30s, since the cluster refuses the lock: a policy says no") {
		t.Errorf("told %q", said)
	}
	w.next()
	if !slices.Equal(w.starts, []string{"b"}) || jobs.PhaseOf(w.read(stuck)) != jobs.Waiting {
		t.Fatalf("started %v, and %q holds the lock", w.starts, w.holder())
	}
	w.complete(other, false)
	w.pass(2)
	w.clock.Step(3 * time.Minute)
	w.pass(1)
	w.awaitItem()
	w.wantError()
	if said := strings.Join(w.told(), "\n"); !strings.Contains(said, "for 3m0s") {
		t.Errorf("told %q, want a pause of as long as it has waited", said)
	}
	w.awaitAnnotations() // A start that meets one is repeated by another pass.
	w.engine.acquire = nil
	w.clock.Step(3 * time.Minute)
	w.next()
	if !w.isRunning(stuck) {
		t.Error("not tried again")
	}
}

// An earlier release admitted Jobs with such keys; the lock is refused to them since.
func TestAJobIsToldThatItsKeyIsRefused(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.engine.acquire = func(_ context.Context, _ string, request lock.Request) (*v1alpha1.Lock, error) {
		request.Key = "deploy\u200b"
		_, err := request.Validate(rules.DefaultLimits())
		return nil, err
	}
	w.pass(1)
	w.awaitItem()
	w.wantError()
	if said := strings.Join(w.told(), "\n"); !strings.Contains(said, "Warning LockRefused") || !strings.Contains(said, "character 7 is U+200B") {
		t.Errorf("told %q", said)
	}
}

// Its place would say that it gets the lock before those that follow it.
func TestARefusedJobIsAnnotatedWithTheRefusalUntilItWaitsAgain(t *testing.T) {
	w := newWorld(t)
	w.grantTo("alice")
	stuck := w.create("a")
	w.create("b")
	refuse := make(chan struct{})
	w.engine.acquire = func(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error) {
		if request.Reason == "Job a" {
			select {
			case <-refuse:
			case <-ctx.Done():
			}
		}
		return w.refuseLock(ctx, namespace, request)
	}
	wantNote := func(when, want string) {
		t.Helper()
		w.awaitAnnotations()
		if note := w.note(stuck); !strings.HasPrefix(note, want) {
			t.Errorf("the note is %q %s, want %q", note, when, want)
		}
	}
	w.pass(1)
	w.clock.Step(reportAfter)
	w.pass(1)
	wantNote("while it waits", "place 1 of 2 at ")
	refused := func(at, again string) string {
		return fmt.Sprintf("refused at 2026-11-21T%sZ, tried again after 2026-11-21T%sZ: the cluster refuses the lock: a policy says no", at, again)
	}
	refuse <- struct{}{}
	w.awaitItem()
	w.wantError()
	wantNote("when it is refused", refused("10:00:01", "10:00:31"))
	w.clock.Step(refusedStartBackoff)
	w.pass(1)
	w.clock.Step(reportAfter)
	w.pass(1)
	wantNote("when it waits again", "place 1 of 2 at ")

	w.clock.Step(9 * time.Minute)
	refuse <- struct{}{}
	w.awaitItem()
	w.wantError()
	wantNote("when it is refused again", refused("10:09:32", "10:19:04"))
	w.clock.Step(2 * time.Minute)
	w.pass(1)
	wantNote("when a report of its place would be due", refused("10:09:32", "10:19:04"))
}

func TestAJobThatDoesNotWaitFailsIfItIsRefusedTheLock(t *testing.T) {
	w := newWorld(t)
	stuck := w.create("a", skip)
	w.engine.acquire = w.refuseLock
	w.wantError()
	failed := slices.ContainsFunc(w.read(stuck).Status.Conditions, func(condition batchv1.JobCondition) bool {
		return condition.Type == batchv1.JobFailureTarget && condition.Reason == "LockRefused" && strings.Contains(condition.Message, "a policy says no")
	})
	if !failed {
		t.Errorf("its conditions are %v", w.read(stuck).Status.Conditions)
	}
	w.pass(1)
}
