package jobgate

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/jobs"
)

// jobAPIVersion and jobKind are how a lock names the Job that holds it.
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
	// isBehind says that this replica has changed the Job since.
	isBehind bool
	// reportedAt is when the Job was last told whom it waits for.
	reportedAt time.Time
	// isAnnotated says that it was told so by its annotation, too.
	isAnnotated bool
	// endAgainAt is when to try again to end a Job that could not be ended, or zero.
	endAgainAt time.Time
	// shownIn is the last update of the roster that had the Job.
	shownIn uint64
}

func (c *candidate) is(phase jobs.Phase) bool { return !c.isBehind && c.phase == phase }

func (c *candidate) ref() *v1alpha1.HolderReference {
	return &v1alpha1.HolderReference{APIVersion: jobAPIVersion, Kind: jobKind, Name: c.job.Name, UID: c.job.UID}
}
