package jobgate

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/lock/jobs"
)

// jobQueue holds the Jobs that want a lock, as the cache showed them last. Each version of a
// Job is parsed once: a pass over many Jobs of which few have changed costs little. Its zero
// value is empty.
type jobQueue struct {
	// byUID, byJob and ordered have the same candidates, the last in the order in which they
	// are served. The cache never modifies an object and shows each version of a Job as another
	// one: a Job that byJob has is unchanged.
	byUID   map[types.UID]*jobInfo
	byJob   map[*batchv1.Job]*jobInfo
	ordered []*jobInfo
	// updates counts the calls of update.
	updates uint64
}

// update replaces the Jobs by those that the cache shows.
func (q *jobQueue) update(shown []*batchv1.Job, maxTTL time.Duration) {
	if q.byUID == nil {
		q.byUID, q.byJob = map[types.UID]*jobInfo{}, map[*batchv1.Job]*jobInfo{}
	}
	q.updates++
	isSorted := true
	for _, job := range shown {
		known := q.byJob[job]
		if known == nil {
			var isInOrder bool
			known, isInOrder = q.read(job, maxTTL)
			isSorted = isSorted && isInOrder
		}
		known.shownIn = q.updates
	}
	if len(q.byUID) > len(shown) {
		q.ordered = slices.DeleteFunc(q.ordered, func(candidate *jobInfo) bool {
			isGone := candidate.shownIn != q.updates
			if isGone {
				delete(q.byUID, candidate.job.UID)
				delete(q.byJob, candidate.job)
			}
			return isGone
		})
	}
	if !isSorted {
		slices.SortFunc(q.ordered, func(a, b *jobInfo) int { return a.orderingKey.Compare(b.orderingKey) })
	}
}

// read adds or replaces a version of a Job, and reports whether the order is unchanged.
func (q *jobQueue) read(job *batchv1.Job, maxTTL time.Duration) (known *jobInfo, isInOrder bool) {
	known, isInOrder = q.byUID[job.UID], true
	if known == nil {
		known, isInOrder = &jobInfo{}, false
		q.byUID[job.UID] = known
		q.ordered = append(q.ordered, known)
	}
	delete(q.byJob, known.job)
	q.byJob[job] = known
	before := known.orderingKey
	// The index has only Jobs whose options can be parsed.
	options, _ := jobs.ParseTerms(job.Annotations, jobs.Limits{})
	options.TTL = min(options.TTL, maxTTL)
	known.job, known.lockOptions, known.orderingKey, known.phase = job, options, jobs.TurnOf(job, options), jobs.PhaseOf(job)
	if !known.orderingKey.WaitsSince.Equal(before.WaitsSince) {
		known.reportedAt, known.isAnnotated = time.Time{}, false // It has begun another wait.
	}
	return known, isInOrder && known.orderingKey.Compare(before) == 0
}
