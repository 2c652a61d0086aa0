package jobgate

import (
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/jobs"
)

// unadmitted is the state of a Job that was created while the webhook was away.
func unadmitted(job *batchv1.Job) {
	job.Finalizers = nil
	job.Spec.Suspend = nil
}

// unbegun is what the Job controller makes of a Job that was suspended.
func unbegun(job *batchv1.Job) {
	job.Status.StartTime = nil
	answered(job)
}

func TestPodsOfAJobThatWasNotAdmittedEndBeforeAnotherOneStarts(t *testing.T) {
	cases := map[string][]change{
		"and runs":                              {unadmitted, begun},
		"and was suspended, and not long since": {unadmitted, suspended, begun},
		"and was suspended":                     {unadmitted, suspended},
	}
	for name, changes := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			free := w.create("a", changes...)
			w.pods[free.UID] = true
			waits := w.create("b")
			w.grant(waits)
			for range 3 {
				w.pass(2)
				w.write(free, unbegun)
				w.clock.Step(podsPeriod)
			}
			if w.isRunning(waits) {
				t.Fatal("started while a pod of the other Job runs")
			}
			w.pods[free.UID] = false
			w.pass(2)
			if !w.isRunning(waits) {
				t.Error("not started when the pods have ended")
			}
			current := w.read(free)
			if _, isMarked := current.Annotations[v1alpha1.LockStoppingAnnotation]; isMarked || jobs.PhaseOf(current) != jobs.Waiting {
				t.Errorf("is %s, marked: %v", jobs.PhaseOf(current), isMarked)
			}
			if !slices.Contains(current.Finalizers, v1alpha1.LockFinalizer) {
				t.Error("waits without the finalizer")
			}
		})
	}
}

func TestADeletedJobWithAnotherFinalizerBlocksNoOtherJob(t *testing.T) {
	for name, state := range map[string]change{"when it ran": stopping, "when it waited": func(*batchv1.Job) {}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			kept := w.create("a", state, func(job *batchv1.Job) { job.Finalizers = append(job.Finalizers, "example.com/keep") })
			if err := w.cluster.Delete(t.Context(), kept); err != nil {
				t.Fatal(err)
			}
			waits := w.create("b")
			w.grant(waits)
			for range 3 {
				w.finalize(kept)
				w.pass(1)
				w.write(kept, answered)
				w.clock.Step(podsPeriod)
			}
			w.pass(1)
			if !w.isRunning(waits) {
				t.Error("not started")
			}
			if slices.Contains(w.read(kept).Finalizers, v1alpha1.LockFinalizer) {
				t.Error("kept by the operator")
			}
		})
	}
}
