package jobgate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/lock/jobs"
)

// Whatever fails, is lost, restarted or late: no two Jobs have pods at the same time, and
// every Job runs in the end.
func TestNeverTwoJobsAtATime(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			s := newSimulation(t, seed)
			for range 150 {
				s.step()
				s.check()
			}
			s.endFaults()
			for range 1500 {
				if s.areAllComplete() {
					return
				}
				s.pass()
				s.check()
				s.act()
				s.clock.Step(podsPeriod)
			}
			t.Errorf("Jobs are left; %q holds the lock, started %v", s.holder(), s.starts)
		})
	}
}

// simulation is a world with a Job controller and bad luck.
type simulation struct {
	*world
	random *rand.Rand
	jobs   []*batchv1.Job
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	t.Helper()
	s := &simulation{world: newWorld(t), random: rand.New(rand.NewPCG(seed, 1))}
	for i := range 5 {
		s.jobs = append(s.jobs, s.create(fmt.Sprintf("job-%d", i)))
	}
	return s
}

func (s *simulation) any() *batchv1.Job { return s.jobs[s.random.IntN(len(s.jobs))] }

// step has one thing happen, most often a pass.
func (s *simulation) step() {
	switch s.random.IntN(20) {
	case 0:
		s.clock.Step(jobs.DefaultTTL / 4)
	case 1:
		s.clock.Step(jobs.DefaultTTL + time.Second)
	case 2:
		_ = s.locks.ForceRelease(s.t.Context(), space, key, "test")
	case 3:
		s.shown = nil // Its caches begin with a list.
		s.start()
	case 4:
		s.engine.renewing = errOutage
	case 5:
		unlucky := s.any().Name
		s.refuse = func(job client.Object, _ bool) error {
			if job.GetName() == unlucky {
				return errPolicy
			}
			return nil
		}
	case 6:
		s.freeze()
	case 7, 8:
		s.endFaults()
	case 9, 10, 11:
		s.act()
		s.clock.Step(podsPeriod)
	default:
		s.pass()
	}
}

func (s *simulation) endFaults() { s.engine.renewing, s.refuse, s.shown = nil, nil, nil }

func (s *simulation) pass() {
	_, _ = s.tryPass() // Errors are part of it.
	s.awaitAnnotations()
}

// act is what the Job controller and the kubelet do for one Job.
func (s *simulation) act() {
	job := s.read(s.any())
	s.mu.Lock()
	hasPods := s.pods[job.UID]
	s.mu.Unlock()
	switch {
	case jobs.IsFinished(job):
	case jobs.IsSuspended(job) && job.Status.Ready == nil:
		s.write(job, func(job *batchv1.Job) { job.Status.Ready = new(int32(0)) })
	case jobs.IsSuspended(job) && hasPods:
		s.mu.Lock()
		s.pods[job.UID] = false
		s.mu.Unlock()
	case !jobs.IsSuspended(job):
		// The pod may outlast what the Job controller knows.
		s.complete(job, s.random.IntN(2) == 0)
	}
	if jobs.IsFinished(job) {
		s.mu.Lock()
		s.pods[job.UID] = false
		s.mu.Unlock()
		_, _ = finalizerReconciler{s.reconciler}.Reconcile(s.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(job)})
	}
}

func (s *simulation) check() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var with []string
	for uid, hasPods := range s.pods {
		if hasPods {
			with = append(with, string(uid))
		}
	}
	if len(with) > 1 {
		slices.Sort(with)
		s.t.Fatalf("%v have pods at the same time; started %v", with, s.starts)
	}
}

func (s *simulation) areAllComplete() bool {
	return !slices.ContainsFunc(s.jobs, func(job *batchv1.Job) bool { return !jobs.IsFinished(s.read(job)) })
}
