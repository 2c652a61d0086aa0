package jobgate

import (
	"maps"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/lock/rules"
)

// lockState is what is known of one lock beyond the caches. Only passes over that lock use
// it, one at a time, except for waiting and isAnnotating.
type lockState struct {
	// holding is the grant to a Job, or nil.
	grant *grant
	// ended are the owner tokens of grants that were released or lost, or that the engine
	// ends because their contender was recalled. The cache may still show them.
	ended map[string]bool
	// contender waits for the lock on behalf of the first Job in the queue, or is nil.
	waiter *waiter
	// written are the versions of Jobs that this replica has written and the cache may not
	// show yet.
	written map[types.UID]string
	// fences are what the Job controller has to answer before a Job counts as stopped.
	syncRequests map[types.UID]string
	// cleared are Jobs that have no pods and get none any more.
	withoutPods map[types.UID]bool
	// lookedAt is when pods of a Job were last listed.
	podsListedAt map[types.UID]time.Time
	// putOffUntil is until when others are served before a Job whose start was refused.
	backoffUntil map[types.UID]time.Time
	// roster is the Jobs that want the lock.
	jobQueue jobQueue
	// waiting is how many Jobs wait.
	waiting atomic.Int64
	// isAnnotating says that annotations are being written.
	isAnnotating atomic.Bool
}

func newLockState() *lockState {
	return &lockState{
		ended:       map[string]bool{},
		backoffUntil: map[types.UID]time.Time{},
		written:     map[types.UID]string{},
		syncRequests:      map[types.UID]string{},
		withoutPods:     map[types.UID]bool{},
		podsListedAt:    map[types.UID]time.Time{},
	}
}

// isBehind reports whether the cache has not caught up with what this replica wrote.
func (s *lockState) isBehind(job *batchv1.Job) bool {
	if len(s.written) == 0 {
		return false
	}
	written, ok := s.written[job.UID]
	if !ok {
		return false
	}
	if rules.IsNewer(written, job.ResourceVersion) {
		return true
	}
	delete(s.written, job.UID)
	return false
}

// maxEnded bounds how many ended grants are remembered. One that is forgotten while the
// cache still shows it costs a request more.
const maxEnded = 64

func (s *lockState) recordEnded(owner string) {
	if len(s.ended) >= maxEnded {
		clear(s.ended)
	}
	s.ended[owner] = true
}

// forgetOthers drops what is known of Jobs that are gone.
func (s *lockState) forgetGoneJobs() {
	forgetGoneJobs(s, s.written)
	forgetGoneJobs(s, s.syncRequests)
	forgetGoneJobs(s, s.withoutPods)
	forgetGoneJobs(s, s.podsListedAt)
	forgetGoneJobs(s, s.backoffUntil)
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

// tidy drops the slot of a lock that no Job wants.
func (r *Reconciler) dropIfIdle(name client.ObjectKey, candidates int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if state := r.states[name]; candidates == 0 && state.grant == nil && state.waiter == nil {
		delete(r.states, name)
	}
}

// forget lets go of a lock without a request: another replica leads and finds by the
// lock itself which Job holds it.
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
