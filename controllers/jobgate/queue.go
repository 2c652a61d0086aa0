package jobgate

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/lock/jobs"
)

// roster is the Jobs that want a lock, as the cache showed them last. Each version of a Job
// is read once, so that a pass over many Jobs of which few have changed costs little. Its
// zero value is empty.
type jobQueue struct {
	// byUID, byJob and inTurn have the same candidates, the last in the order in which they
	// are served. The cache shows every version of a Job as another object, and never
	// modifies one, so that what byJob has need not be looked at.
	byUID  map[types.UID]*candidate
	byJob  map[*batchv1.Job]*candidate
	ordered []*candidate
	// updates counts the calls of update.
	updates uint64
}

// update takes in what the cache shows.
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

// read takes in another version of a Job, and reports whether the order is as it was.
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
	// What the index found can be parsed.
	terms, _ := jobs.ParseTerms(job.Annotations, jobs.Limits{})
	terms.TTL = min(terms.TTL, maxTTL)
	known.job, known.terms, known.turn, known.phase = job, terms, jobs.TurnOf(job, terms), jobs.PhaseOf(job)
	if !known.turn.WaitsSince.Equal(before.WaitsSince) {
		known.reportedAt, known.isAnnotated = time.Time{}, false // It waits anew.
	}
	return known, isInOrder && known.turn.Compare(before) == 0
}
