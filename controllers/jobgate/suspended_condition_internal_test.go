package jobgate

import (
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/lock/jobs"
)

// The Job controller turns the condition to False when it finds it on a started Job, which Argo CD
// takes for the end of the Job.
func TestAJobIsStartedWithoutTheConditionSuspended(t *testing.T) {
	w := newWorld(t)
	job := w.create("a", condition(batchv1.JobSuspended), condition("Ours"))
	w.pass(1)
	w.awaitContender()
	if !w.isRunning(job) || jobs.HasSuspendedCondition(w.read(job)) || len(w.read(job).Status.Conditions) != 1 {
		t.Errorf("started %v, with the conditions %v", w.starts, w.read(job).Status.Conditions)
	}
}

func TestAJobIsNotStartedIfTheConditionSuspendedComesBack(t *testing.T) {
	w := newWorld(t)
	job := w.create("a", condition(batchv1.JobSuspended))
	w.pass(1)
	comesBack := 2
	w.refuse = func(_ client.Object, isStatus bool) error {
		if !isStatus && comesBack > 0 {
			comesBack--
			w.write(job, condition(batchv1.JobSuspended))
		}
		return nil
	}
	w.awaitContender()
	if w.isRunning(job) || !jobs.HasSuspendedCondition(w.read(job)) {
		t.Fatalf("started %v, with the conditions %v", w.starts, w.read(job).Status.Conditions)
	}
	w.pass(2)
	if !w.isRunning(job) || jobs.HasSuspendedCondition(w.read(job)) {
		t.Errorf("started %v, with the conditions %v", w.starts, w.read(job).Status.Conditions)
	}
	if warnings := w.suspendedKept(); len(warnings) != 0 {
		t.Errorf("warned of a Job that was started without the condition: %q", warnings)
	}
	if held := w.holder(); held != "a" || len(w.starts) != 1 {
		t.Errorf("%q holds the lock, started %v", held, w.starts)
	}
}

// Where the start is always too late, since admission of Jobs is slow, the Job starts all the same.
func TestAJobStartsThoughTheConditionSuspendedAlwaysComesBack(t *testing.T) {
	w := newWorld(t)
	job := w.create("a", condition(batchv1.JobSuspended))
	w.pass(1)
	lost := 0
	w.refuse = func(_ client.Object, isStatus bool) error {
		if !isStatus && !jobs.HasSuspendedCondition(w.read(job)) {
			lost++
			w.write(job, condition(batchv1.JobSuspended))
		}
		return nil
	}
	w.awaitContender()
	w.pass(2 * maxLostStarts)
	if !w.isRunning(job) || !jobs.HasSuspendedCondition(w.read(job)) || lost != maxLostStarts {
		t.Errorf("started %v after %d attempts, with the conditions %v", w.starts, lost, w.read(job).Status.Conditions)
	}
	if warnings := w.suspendedKept(); len(warnings) != 1 || !strings.Contains(warnings[0], "config/argocd") {
		t.Errorf("warnings: %q", warnings)
	}
	w.pass(2)
	if warnings := w.suspendedKept(); len(warnings) != 0 {
		t.Errorf("warned again: %q", warnings)
	}
}

// suspendedKept returns the warnings since the last call that a Job was started with the condition Suspended.
func (w *world) suspendedKept() []string {
	return slices.DeleteFunc(w.told(), func(event string) bool {
		return !strings.HasPrefix(event, "Warning LockSuspendedKept ")
	})
}

// A condition that cannot be removed is a start that is refused: the Jobs behind it go on.
func TestAConditionThatCannotBeRemovedDelaysNoOthers(t *testing.T) {
	w := newWorld(t)
	stuck := w.create("a", condition(batchv1.JobSuspended))
	other := w.create("b", condition(batchv1.JobSuspended))
	w.refuse = func(job client.Object, isStatus bool) error {
		if isStatus && job.GetName() == "a" {
			return errPolicy
		}
		return nil
	}
	w.pass(1)
	w.awaitContender()
	w.pass(1)
	w.awaitContender()
	if w.isRunning(stuck) || !w.isRunning(other) {
		t.Errorf("started %v", w.starts)
	}
}

// Argo CD takes a complete Job with the condition for one that waits, and its sync never ends.
func TestAJobThatIsNotRunEndsWithoutTheConditionSuspended(t *testing.T) {
	w := newWorld(t)
	w.grantTo("alice")
	job := w.create("a", skip, condition(batchv1.JobSuspended))
	w.pass(1)
	if current := w.read(job); jobs.HasSuspendedCondition(current) || len(current.Status.Conditions) != 1 {
		t.Errorf("ends with the conditions %v", current.Status.Conditions)
	}
}
