package jobgate

import (
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func hasSuspended(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(condition batchv1.JobCondition) bool {
		return condition.Type == batchv1.JobSuspended
	})
}

// The Job controller turns the condition to False when it finds it on a started Job, which Argo CD
// takes for the end of the Job.
func TestAJobIsStartedWithoutTheConditionSuspended(t *testing.T) {
	w := newWorld(t)
	job := w.create("a", condition(batchv1.JobSuspended), condition("Ours"))
	w.pass(1)
	w.awaitContender()
	if !w.isRunning(job) || hasSuspended(w.read(job)) || len(w.read(job).Status.Conditions) != 1 {
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
	if w.isRunning(job) || !hasSuspended(w.read(job)) {
		t.Fatalf("started %v, with the conditions %v", w.starts, w.read(job).Status.Conditions)
	}
	w.pass(2)
	if !w.isRunning(job) || hasSuspended(w.read(job)) {
		t.Errorf("started %v, with the conditions %v", w.starts, w.read(job).Status.Conditions)
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
	w.refuse = func(_ client.Object, isStatus bool) error {
		if !isStatus && !hasSuspended(w.read(job)) {
			w.write(job, condition(batchv1.JobSuspended))
		}
		return nil
	}
	w.awaitContender()
	w.pass(2 * maxLostStarts)
	if !w.isRunning(job) || !hasSuspended(w.read(job)) {
		t.Errorf("started %v, with the conditions %v", w.starts, w.read(job).Status.Conditions)
	}
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
	if current := w.read(job); hasSuspended(current) || len(current.Status.Conditions) != 1 {
		t.Errorf("ends with the conditions %v", current.Status.Conditions)
	}
}
