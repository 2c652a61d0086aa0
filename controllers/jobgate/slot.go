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

// slot is what is known of one lock beyond the caches. Only passes over that lock use
// it, one at a time, except for waiting and isAnnotating.
type slot struct {
	// holding is the grant to a Job, or nil.
	holding *holding
	// ended are the owner tokens of grants that were released or lost, or that the engine
	// ends because their contender was recalled. The cache may still show them.
	ended map[string]bool
	// contender waits for the lock on behalf of the first Job in the queue, or is nil.
	contender *contender
	// written are the versions of Jobs that this replica has written and the cache may not
	// show yet.
	written map[types.UID]string
	// fences are what the Job controller has to answer before a Job counts as stopped.
	fences map[types.UID]string
	// cleared are Jobs that have no pods and get none any more.
	cleared map[types.UID]bool
	// lookedAt is when pods of a Job were last listed.
	lookedAt map[types.UID]time.Time
	// putOffUntil is until when others are served before a Job whose start was refused.
	putOffUntil map[types.UID]time.Time
	// roster is the Jobs that want the lock.
	roster roster
	// waiting is how many Jobs wait.
	waiting atomic.Int64
	// isAnnotating says that annotations are being written.
	isAnnotating atomic.Bool
}

func newSlot() *slot {
	return &slot{
		ended:       map[string]bool{},
		putOffUntil: map[types.UID]time.Time{},
		written:     map[types.UID]string{},
		fences:      map[types.UID]string{},
		cleared:     map[types.UID]bool{},
		lookedAt:    map[types.UID]time.Time{},
	}
}

// isBehind reports whether the cache has not caught up with what this replica wrote.
func (s *slot) isBehind(job *batchv1.Job) bool {
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

func (s *slot) noteEnd(owner string) {
	if len(s.ended) >= maxEnded {
		clear(s.ended)
	}
	s.ended[owner] = true
}

// forgetOthers drops what is known of Jobs that are gone.
func (s *slot) forgetOthers() {
	forgetOthers(s, s.written)
	forgetOthers(s, s.fences)
	forgetOthers(s, s.cleared)
	forgetOthers(s, s.lookedAt)
	forgetOthers(s, s.putOffUntil)
}

func forgetOthers[V any](s *slot, known map[types.UID]V) {
	maps.DeleteFunc(known, func(uid types.UID, _ V) bool {
		return s.roster.byUID[uid] == nil && (s.holding == nil || s.holding.job != uid)
	})
}

func (g *Gate) slot(name client.ObjectKey) *slot {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.slots[name] == nil {
		g.slots[name] = newSlot()
	}
	return g.slots[name]
}

func (g *Gate) hasSlot(name client.ObjectKey) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.slots[name] != nil
}

// tidy drops the slot of a lock that no Job wants.
func (g *Gate) tidy(name client.ObjectKey, candidates int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if slot := g.slots[name]; candidates == 0 && slot.holding == nil && slot.contender == nil {
		delete(g.slots, name)
	}
}

// forget lets go of a lock without a request: another replica leads and finds by the
// lock itself which Job holds it.
func (g *Gate) forget(name client.ObjectKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if slot := g.slots[name]; slot != nil {
		if slot.contender != nil {
			slot.contender.cancel()
		}
		delete(g.slots, name)
	}
}
