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
	byUID   map[types.UID]*candidate
	byJob   map[*batchv1.Job]*candidate
	ordered []*candidate
	// updates counts the calls of update.
	updates uint64
}

// update replaces the Jobs by those that the cache shows.
func (q *jobQueue) update(shown []*batchv1.Job, maxTTL time.Duration) {
	if q.byUID == nil {
		q.byUID, q.byJob = map[types.UID]*candidate{}, map[*batchv1.Job]*candidate{}
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
		q.ordered = slices.DeleteFunc(q.ordered, func(candidate *candidate) bool {
			isGone := candidate.shownIn != q.updates
			if isGone {
				delete(q.byUID, candidate.job.UID)
				delete(q.byJob, candidate.job)
			}
			return isGone
		})
	}
	if !isSorted {
		slices.SortFunc(q.ordered, func(a, b *candidate) int { return a.turn.Compare(b.turn) })
	}
}

// read adds or replaces a version of a Job, and reports whether the order is unchanged.
func (q *jobQueue) read(job *batchv1.Job, maxTTL time.Duration) (known *candidate, isInOrder bool) {
	known, isInOrder = q.byUID[job.UID], true
	if known == nil {
		known, isInOrder = &candidate{}, false
		q.byUID[job.UID] = known
		q.ordered = append(q.ordered, known)
	}
	delete(q.byJob, known.job)
	q.byJob[job] = known
	before := known.turn
	// The index has only Jobs whose terms can be parsed.
	terms, _ := jobs.ParseTerms(job.Annotations, jobs.Limits{})
	terms.TTL = min(terms.TTL, maxTTL)
	known.job, known.terms, known.turn, known.phase = job, terms, jobs.TurnOf(job, terms), jobs.PhaseOf(job)
	if !known.turn.WaitsSince.Equal(before.WaitsSince) {
		known.reportedAt, known.isAnnotated = time.Time{}, false // It has begun another wait.
	}
	return known, isInOrder && known.turn.Compare(before) == 0
}
