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
type roster struct {
	// byUID, byJob and inTurn have the same candidates, the last in the order in which they
	// are served. The cache shows every version of a Job as another object, and never
	// modifies one, so that what byJob has need not be looked at.
	byUID  map[types.UID]*candidate
	byJob  map[*batchv1.Job]*candidate
	inTurn []*candidate
	// updates counts the calls of update.
	updates uint64
}

// update takes in what the cache shows.
func (r *roster) update(shown []*batchv1.Job, maxTTL time.Duration) {
	if r.byUID == nil {
		r.byUID, r.byJob = map[types.UID]*candidate{}, map[*batchv1.Job]*candidate{}
	}
	r.updates++
	isSorted := true
	for _, job := range shown {
		known := r.byJob[job]
		if known == nil {
			var isInOrder bool
			known, isInOrder = r.read(job, maxTTL)
			isSorted = isSorted && isInOrder
		}
		known.shownIn = r.updates
	}
	if len(r.byUID) > len(shown) {
		r.inTurn = slices.DeleteFunc(r.inTurn, func(candidate *candidate) bool {
			isGone := candidate.shownIn != r.updates
			if isGone {
				delete(r.byUID, candidate.job.UID)
				delete(r.byJob, candidate.job)
			}
			return isGone
		})
	}
	if !isSorted {
		slices.SortFunc(r.inTurn, func(a, b *candidate) int { return a.turn.Compare(b.turn) })
	}
}

// read takes in another version of a Job, and reports whether the order is as it was.
func (r *roster) read(job *batchv1.Job, maxTTL time.Duration) (known *candidate, isInOrder bool) {
	known, isInOrder = r.byUID[job.UID], true
	if known == nil {
		known, isInOrder = &candidate{}, false
		r.byUID[job.UID] = known
		r.inTurn = append(r.inTurn, known)
	}
	delete(r.byJob, known.job)
	r.byJob[job] = known
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
