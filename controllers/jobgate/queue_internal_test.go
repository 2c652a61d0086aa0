package jobgate

import (
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/jobs"
)

// rosterTest is a roster of 100 Jobs.
type rosterTest struct {
	jobQueue

	now   time.Time
	shown []*batchv1.Job
}

func newRosterTest() *rosterTest {
	r := &rosterTest{now: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
	for i := range 100 {
		r.shown = append(r.shown, waitingJob(r.now, i))
	}
	r.readAgain()
	return r
}

// readAgain updates the roster and returns the Jobs that it has read. What it worked out
// for a Job is then replaced by something that would not last if it were worked out again.
func (r *rosterTest) readAgain() (names []string) {
	r.update(r.shown, time.Hour)
	for _, candidate := range r.ordered {
		if candidate.lockOptions.Key != "not read" {
			names = append(names, candidate.job.Name)
		}
		candidate.lockOptions.Key = "not read"
		candidate.reportedAt = r.now
	}
	return names
}

func TestUnchangedJobsAreNotReadAgain(t *testing.T) {
	r := newRosterTest()
	slices.Reverse(r.shown)
	slices.Reverse(r.ordered)
	if got := r.readAgain(); len(got) > 0 {
		t.Errorf("read again: %v", got)
	}
	if r.ordered[0].job != r.shown[0] {
		t.Error("sorted again")
	}
}

func TestChangedJobsAreReadAgain(t *testing.T) {
	r := newRosterTest()
	changed := r.shown[7].DeepCopy()
	changed.Annotations[v1alpha1.LockPriorityAnnotation] = "1"
	r.shown[7] = changed
	if got := r.readAgain(); !slices.Equal(got, []string{changed.Name}) {
		t.Errorf("read again: %v, want %s", got, changed.Name)
	}
	if len(r.byJob) != len(r.shown) {
		t.Errorf("keeps %d versions of %d Jobs", len(r.byJob), len(r.shown))
	}
	if first := r.ordered[0]; first.job != changed || first.lockOptions.Priority != 1 || !first.reportedAt.Equal(r.now) {
		t.Errorf("first is %s with the priority %d, told at %s", first.job.Name, first.lockOptions.Priority, first.reportedAt)
	}
}

func TestTheQueueFollowsTheCache(t *testing.T) {
	r := newRosterTest()
	r.shown[3] = waitingJob(r.now, 200)
	if got := r.readAgain(); !slices.Equal(got, []string{"job-00200"}) || r.ordered[99].job != r.shown[3] {
		t.Errorf("read again: %v", got)
	}
	r.shown = r.shown[:2]
	r.readAgain()
	if len(r.ordered) != 2 || len(r.byUID) != 2 || len(r.byJob) != 2 {
		t.Errorf("keeps %d, %d and %d Jobs", len(r.ordered), len(r.byUID), len(r.byJob))
	}
}

// waitingJob returns one of many Jobs that were created within a while and began to wait
// now, so that none is told anything.
func waitingJob(now time.Time, number int) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: space, Name: fmt.Sprintf("job-%05d", number), UID: types.UID(fmt.Sprintf("%08d-0000-0000-0000-000000000000", number)),
			ResourceVersion: "1", CreationTimestamp: metav1.NewTime(now.Add(time.Duration(number/50-1000) * time.Second)),
			Labels: map[string]string{v1alpha1.LockLabel: "true"},
			Annotations: map[string]string{
				v1alpha1.LockKeyAnnotation: "key", v1alpha1.LockQueuedTimeAnnotation: jobs.FormatTime(now),
			},
			Finalizers: []string{v1alpha1.LockFinalizer},
		},
		Spec: batchv1.JobSpec{Suspend: new(true)},
	}
}
