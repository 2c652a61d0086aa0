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

// candidate is a Job that wants, has or had the lock, as the cache shows it. The Job must
// not be modified.
type candidate struct {
	job *batchv1.Job
	// terms, turn and phase are those of the Job.
	terms jobs.Terms
	turn  jobs.Turn
	phase jobs.Phase
	// isBehind says that this replica has written a newer version of the Job.
	isBehind bool
	// reportedAt is the time of the last report to the Job about its wait.
	reportedAt time.Time
	// isAnnotated says that the report included the annotation.
	isAnnotated bool
	// endAgainAt is when to repeat a failed attempt to end the Job, or zero.
	endAgainAt time.Time
	// shownIn is the last update of the queue that included the Job.
	shownIn uint64
}

func (c *candidate) is(phase jobs.Phase) bool { return !c.isBehind && c.phase == phase }

func (c *candidate) ref() *v1alpha1.HolderReference {
	return &v1alpha1.HolderReference{APIVersion: jobAPIVersion, Kind: jobKind, Name: c.job.Name, UID: c.job.UID}
}
