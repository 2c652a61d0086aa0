package jobs_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/jobs"
)

func TestARefusalIsReadFromTheAnnotation(t *testing.T) {
	at := time.Date(2026, 11, 21, 15, 30, 5, 0, time.UTC)
	refusal := jobs.Refusal{At: at, Until: at.Add(time.Minute), Why: "the cluster refuses the lock: exceeded quota: locks, used: 2"}
	for text, want := range map[string]*jobs.Refusal{
		refusal.String(): &refusal,
		"":               nil,
		"place 2 of 3 at 2026-11-21T15:30:05Z: lock:key is held by \"alice\"": nil,
		"refused at noon: because": nil,
	} {
		got := jobs.RefusalOf(waiting(func(job *batchv1.Job) { job.Annotations[v1alpha1.LockWaitingAnnotation] = text }))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}
