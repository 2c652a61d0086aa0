package jobgate

import (
	"maps"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/rules"
)

// lockState is what is known of one lock beyond the caches. Only passes over that lock use
// it, one at a time, except for the atomic fields.
type lockState struct {
	// grant is the grant to a Job, or nil.
	grant *grant
	// releasedOwners are the owner tokens of grants that were released or lost, or that the engine
	// ends because their waiter was cancelled. The cache may still show them.
	releasedOwners map[string]bool
	// waiter waits for the lock on behalf of the first Job in the queue, or is nil.
	waiter *waiter
	// expectedVersions are the versions of Jobs that this replica has written and the cache may not
	// show yet.
	expectedVersions map[types.UID]string
	// syncRequests are the versions of Jobs that the Job controller must have seen before the
	// Jobs count as stopped; see [pass.requestStatusSync].
	syncRequests map[types.UID]string
	// withoutPods are Jobs that have no pods and get none.
	withoutPods map[types.UID]bool
	// podsListedAt is when the pods of a Job were last listed.
	podsListedAt map[types.UID]time.Time
	// reportedPods are the pods that keep the lock of an ended Job without being its own, and that an
	// event on the Job has named.
	reportedPods map[types.UID]types.UID
	// lostStarts counts the starts of Jobs that came too late, since the Job controller had added the
	// condition Suspended again.
	lostStarts map[types.UID]int
	// losses say how Jobs have lost the lock, as far as this replica has seen it.
	losses map[types.UID]string
	// refusals are of Jobs that were refused the lock or its start, until they may be tried again.
	refusals map[types.UID]jobs.Refusal
	// jobQueue are the Jobs that want the lock.
	jobQueue jobQueue
	// count is how many Jobs wait and run. Nil before the first pass.
	count atomic.Pointer[jobCount]
	// annotating counts the goroutines that write annotations.
	annotating atomic.Int32
	// lastPass and lastEvent tell how urgent the next pass is. Nil means that there was none.
	lastPass  atomic.Pointer[passResult]
	lastEvent atomic.Pointer[lockEvent]
}

func newLockState() *lockState {
	return &lockState{
		releasedOwners:   map[string]bool{},
		refusals:         map[types.UID]jobs.Refusal{},
		expectedVersions: map[types.UID]string{},
		syncRequests:     map[types.UID]string{},
		withoutPods:      map[types.UID]bool{},
		lostStarts:       map[types.UID]int{},
		podsListedAt:     map[types.UID]time.Time{},
		reportedPods:     map[types.UID]types.UID{},
		losses:           map[types.UID]string{},
	}
}

// isCacheStale reports whether the cache shows an older version than this replica wrote.
func (s *lockState) isCacheStale(job *batchv1.Job) bool {
	if len(s.expectedVersions) == 0 {
		return false
	}
	expected, ok := s.expectedVersions[job.UID]
	if !ok {
		return false
	}
	if rules.IsNewer(expected, job.ResourceVersion) {
		return true
	}
	delete(s.expectedVersions, job.UID)
	return false
}

// maxReleasedOwners bounds how many owner tokens are remembered. A forgotten one that the cache
// still shows costs one more request.
const maxReleasedOwners = 64

func (s *lockState) recordReleased(owner string) {
	if len(s.releasedOwners) >= maxReleasedOwners {
		clear(s.releasedOwners)
	}
	s.releasedOwners[owner] = true
}

// forgetGoneJobs drops what is known of Jobs that are gone.
func (s *lockState) forgetGoneJobs() {
	forgetGoneJobs(s, s.expectedVersions)
	forgetGoneJobs(s, s.syncRequests)
	forgetGoneJobs(s, s.withoutPods)
	forgetGoneJobs(s, s.lostStarts)
	forgetGoneJobs(s, s.podsListedAt)
	forgetGoneJobs(s, s.reportedPods)
	forgetGoneJobs(s, s.losses)
	forgetGoneJobs(s, s.refusals)
}

func forgetGoneJobs[V any](s *lockState, known map[types.UID]V) {
	maps.DeleteFunc(known, func(uid types.UID, _ V) bool {
		return s.jobQueue.byUID[uid] == nil && (s.grant == nil || s.grant.job != uid)
	})
}

func (r *Reconciler) state(name client.ObjectKey) *lockState {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.states[name] == nil {
		r.states[name] = newLockState()
	}
	return r.states[name]
}

func (r *Reconciler) hasState(name client.ObjectKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.states[name] != nil
}

// dropIfIdle drops the state of a lock that no Job wants or holds.
func (r *Reconciler) dropIfIdle(name client.ObjectKey, candidates int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if state := r.states[name]; candidates == 0 && state.grant == nil && state.waiter == nil {
		delete(r.states, name)
	}
}

// forget drops the state of a lock without a request: the new leader finds in the lock
// itself which Job holds it.
func (r *Reconciler) forget(name client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if state := r.states[name]; state != nil {
		if state.waiter != nil {
			state.waiter.cancel()
		}
		delete(r.states, name)
	}
}
