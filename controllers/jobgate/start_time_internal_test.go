package jobgate

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/lock/jobs"
)

func begun(job *batchv1.Job) { job.Status.StartTime = new(metav1.Now()) }

// The Job controller may find out at any time that a stopped Job has succeeded or failed,
// and can finish none without a start time.
func TestAStoppedJobKeepsItsStartTimeUntilItsPodsHaveEnded(t *testing.T) {
	w := newWorld(t)
	job := w.create("a", stopping, begun)
	w.pods[job.UID] = true
	w.grant(job)
	w.pass(1)
	w.write(job, answered)
	for range 2 {
		w.pass(1)
		w.clock.Step(podsPeriod)
	}
	if w.read(job).Status.StartTime == nil {
		t.Fatal("has lost its start time")
	}
	w.pods[job.UID] = false
	w.pass(1)
	if current := w.read(job); jobs.PhaseOf(current) != jobs.Waiting || current.Status.StartTime != nil {
		t.Errorf("is %s, and was started at %v", jobs.PhaseOf(current), current.Status.StartTime)
	}
}

func TestAnEndedJobWithoutAStartTimeIsGivenOne(t *testing.T) {
	unlabelled := func(job *batchv1.Job) { job.Labels = nil }
	cases := map[string]struct {
		changes []change
		isHeld  bool
	}{
		"that holds the lock":               {isHeld: true},
		"that holds the lock, and is stray": {changes: []change{unlabelled}, isHeld: true},
		"that does not":                     {},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			job := w.create("a", append(test.changes, stopping, condition(batchv1.JobSuccessCriteriaMet))...)
			if test.isHeld {
				w.grant(job)
			}
			w.pass(1)
			if start := w.read(job).Status.StartTime; start == nil || !start.Equal(&job.CreationTimestamp) {
				t.Errorf("was started at %v", start)
			}
			writes := 0
			w.refuse = func(client.Object, bool) error { writes++; return nil }
			w.pass(2)
			if writes > 0 {
				t.Errorf("is written %d times more", writes)
			}
		})
	}
}
