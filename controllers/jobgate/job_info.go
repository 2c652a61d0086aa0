package jobgate

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/jobs"
)

// jobAPIVersion and jobKind are those of a holderRef that names a Job.
const (
	jobAPIVersion = "batch/v1"
	jobKind       = "Job"
)

// jobInfo is a Job that wants, has or had the lock, as the cache shows it. The Job must
// not be modified.
type jobInfo struct {
	job *batchv1.Job
	// lockOptions, orderingKey and phase are those of the Job.
	lockOptions jobs.Terms
	orderingKey jobs.Turn
	phase       jobs.Phase
	// isCacheStale says that this replica has written a newer version of the Job.
	isCacheStale bool
	// reportedAt is the time of the last report to the Job about its wait.
	reportedAt time.Time
	// isAnnotated says that the report included the annotation.
	isAnnotated bool
	// finishAgainAt is when to repeat a failed attempt to finish the Job, or zero.
	finishAgainAt time.Time
	// shownIn is the last update of the queue that included the Job.
	shownIn uint64
}

func (j *jobInfo) is(phase jobs.Phase) bool { return !j.isCacheStale && j.phase == phase }

func (j *jobInfo) ref() *v1alpha1.HolderReference {
	return &v1alpha1.HolderReference{APIVersion: jobAPIVersion, Kind: jobKind, Name: j.job.Name, UID: j.job.UID}
}
