package jobgate

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"

	"forrst.dev/lock-operator/lock/jobs"
)

// answered has the Job controller write its status.
func answered(job *batchv1.Job) { job.Status.Ready = new(int32(0)) }

func suspended(job *batchv1.Job) { job.Spec.Suspend = new(true) }

// The answer of the Job controller in an earlier run says nothing of this one, also if the
// operator does not know that the write has arrived which ended the earlier one.
func TestAStatusSyncEndsWithItsRun(t *testing.T) {
	w, job := started(t)
	w.write(job, suspended)
	w.pods[job.UID] = false
	w.pass(1)
	w.write(job, answered)
	w.losePatches = true
	w.wantError()
	w.losePatches = false
	if phase := jobs.PhaseOf(w.read(job)); phase != jobs.Waiting {
		t.Fatalf("is %s", phase)
	}
	w.pass(1)
	w.awaitContender()
	if len(w.starts) != 2 || w.holder() != "a" {
		t.Fatalf("started %v", w.starts)
	}
	// A user suspends it before the operator sees it run, and the Job controller is slow.
	w.pods[job.UID] = false
	w.write(job, suspended)
	w.clock.Step(podsPeriod)
	w.pass(2)
	if w.holder() != "a" {
		t.Error("released while the Job controller may be about to create a pod")
	}
}
