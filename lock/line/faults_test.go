package line_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/line"
)

// edges are the replicas that are not home to the line.
func (r *replicas) edges() []*replica {
	var edges []*replica
	for _, name := range r.names() {
		if name != r.home() {
			edges = append(edges, r.all[name])
		}
	}
	return edges
}

// hold acquires the lock for an hour.
func (r *replicas) hold(at *replica, owner string) {
	r.t.Helper()
	if _, err := at.Acquire(r.t.Context(), "default", by(owner, 0)); err != nil {
		r.t.Fatal(err)
	}
}

// A lock that the home grants to a caller whose replica has died passes on to the next caller, and not
// only when its ttl is over. The next caller never has it together with the first.
func TestAGrantThatNoReplicaTakesPassesOn(t *testing.T) {
	for name, die := range map[string]func(*replica){
		"the offer is lost":           func(edge *replica) { edge.isSilent.Store(true) },
		"the word to take it is lost": func(edge *replica) { edge.isMute.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testAGrantToADeadReplica(t, die) })
		})
	}
}

func testAGrantToADeadReplica(t *testing.T, die func(*replica)) {
	t.Helper()
	replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
	edges, home := replicas.edges(), replicas.all[replicas.home()]
	replicas.hold(home, "first")
	ctx, leave := context.WithCancel(t.Context())
	dead, taken := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := edges[0].Acquire(ctx, "default", by("dead", time.Hour))
		dead <- err
	}()
	<-time.After(10 * time.Millisecond)
	go func() {
		_, err := edges[1].Acquire(t.Context(), "default", by("next", time.Hour))
		taken <- err
	}()
	<-time.After(10 * time.Millisecond)
	edges[0].isDead.Store(true)
	die(edges[0])
	if err := home.Release(t.Context(), "default", key, lock.Proof{Owner: "first"}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-taken:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(2 * time.Second):
		t.Error("no grant for 2s")
	}
	leave()
	if err := <-dead; err == nil {
		t.Error("two have the lock")
	}
}

// A caller that has left leaves nothing behind, neither at its replica nor at home.
func TestALeavingCallerLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
		replicas.hold(replicas.at(0), "first")
		<-time.After(time.Second)
		var all sync.WaitGroup
		for i := range 30 {
			ctx, cancel := context.WithCancel(t.Context())
			all.Go(func() {
				if i%2 == 0 {
					_, err := replicas.at(i).Acquire(ctx, "default", by(fmt.Sprint(i), time.Second))
					if !errors.Is(err, lock.ErrTimeout) {
						t.Errorf("waiter %d: %v", i, err)
					}
					return
				}
				_, err := replicas.at(i).Acquire(ctx, "default", by(fmt.Sprint(i), time.Hour))
				if !errors.Is(err, context.Canceled) {
					t.Errorf("waiter %d: %v", i, err)
				}
			})
			if i%2 == 1 {
				time.AfterFunc(2*time.Second, cancel)
			}
			t.Cleanup(cancel)
		}
		all.Wait()
		<-time.After(time.Second)
		for name, at := range replicas.all {
			if asked, standing := at.Open(); asked+standing > 0 || at.HasWaiters() {
				t.Errorf("%s: %d questions are open, %d callers stand in line", name, asked, standing)
			}
		}
	})
}

// The lines of a replica that begins to stop move to others at once, in order, and so do its own callers.
func TestADrainingReplicaLosesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
		home := replicas.all[replicas.home()]
		replicas.hold(home, "first")
		<-time.After(time.Second)
		const waiters = 200
		callers := &served{replicas: replicas}
		for i := range waiters {
			callers.come(replicas.at(i), by(fmt.Sprint(i), time.Hour), 0)
			<-time.After(time.Millisecond)
		}
		began := time.Now()
		home.Drain(t.Context())
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("draining took %v", took)
		}
		if home.HasWaiters() {
			t.Error("callers stand in a line of a replica that has drained")
		}
		waiting, _, err := home.Waiters(t.Context(), "default", key, 1000)
		if err != nil || len(waiting) != waiters {
			t.Errorf("%d callers are said to wait: %v", len(waiting), err)
		}
		replicas.release(home, "first")
		callers.wantInTurn(waiters)
	})
}

// A caller whose wait has ended takes its place up again at any replica, also if the new call comes first.
func TestAPlaceIsTakenUpAtAnotherReplica(t *testing.T) {
	for _, test := range []struct {
		name  string
		wait  time.Duration
		pause time.Duration
	}{
		{"after the end of the wait", 100 * time.Millisecond, 4 * time.Second},
		{"before the end of the wait", 5 * time.Second, time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
				replicas.hold(replicas.at(0), "first")
				<-time.After(time.Second)
				var all sync.WaitGroup
				var mu sync.Mutex
				var order []string
				wait := func(at *replica, owner string, wait time.Duration) {
					all.Go(func() {
						if _, err := at.Acquire(t.Context(), "default", by(owner, wait)); err != nil {
							return
						}
						mu.Lock()
						order = append(order, owner)
						mu.Unlock()
						if err := at.Release(t.Context(), "default", key, lock.Proof{Owner: owner}); err != nil {
							t.Error(err)
						}
					})
				}
				wait(replicas.at(0), "a", test.wait)
				<-time.After(10 * time.Millisecond)
				wait(replicas.at(1), "b", time.Hour)
				<-time.After(test.pause)
				wait(replicas.at(2), "a", time.Hour)
				<-time.After(5 * time.Second)
				if err := replicas.at(0).Release(t.Context(), "default", key, lock.Proof{Owner: "first"}); err != nil {
					t.Fatal(err)
				}
				all.Wait()
				if !slices.Equal(order, []string{"a", "b"}) {
					t.Errorf("the order of grants is %v", order)
				}
			})
		})
	}
}

// declining is an engine that refuses what other replicas ask it for.
type declining struct{ *engine.Engine }

func (d declining) Enlist(ctx context.Context, namespace string, request lock.Request, take func(*v1alpha1.Lock, error) bool) (engine.Place, error) {
	place, err := d.Engine.Enlist(ctx, namespace, request, func(*v1alpha1.Lock, error) bool { return false })
	if err == nil {
		go take(nil, errors.New("not understood"))
	}
	return place, err
}

// A home that declines holds up no caller: after a few tries each waits at its own replica.
func TestACallerWaitsAtItsReplicaIfTheHomeDeclines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := &replicas{t: t, etcd: newEtcd(), all: map[string]*replica{}}
		for i := range 3 {
			replicas.addWith(fmt.Sprintf("replica-%d", i), time.Millisecond, func(of *engine.Engine) line.Local { return declining{of} })
		}
		replicas.meet()
		edge := replicas.edges()[0]
		replicas.hold(edge, "first")
		taken := make(chan error, 1)
		go func() {
			_, err := edge.Acquire(t.Context(), "default", by("next", time.Hour))
			taken <- err
		}()
		<-time.After(10 * time.Second)
		writes, reads := replicas.etcd.requests()
		<-time.After(10 * time.Second)
		if nowWrites, nowReads := replicas.etcd.requests(); nowWrites != writes || nowReads-reads > 2+10*4/(5*3)+1 { // The head reads its lock every 3.75 to 5 s.
			t.Errorf("the wait has made %d writes and %d reads in 10 s", nowWrites-writes, nowReads-reads)
		}
		if err := edge.Release(t.Context(), "default", key, lock.Proof{Owner: "first"}); err != nil {
			t.Fatal(err)
		}
		if err := <-taken; err != nil {
			t.Error(err)
		}
	})
}

// refusing is an engine whose cluster refuses every lock, and counts how often it was asked.
type refusing struct {
	*engine.Engine
	asked *atomic.Int32
}

func (r refusing) Acquire(context.Context, string, lock.Request) (*v1alpha1.Lock, error) {
	r.asked.Add(1)
	return nil, &lock.RefusedError{Reason: "quota"}
}

func (r refusing) Enlist(context.Context, string, lock.Request, func(*v1alpha1.Lock, error) bool) (engine.Place, error) {
	r.asked.Add(1)
	return engine.Place{}, &lock.RefusedError{Reason: "quota"}
}

// What the cluster refuses is asked for once, also by a caller that would wait.
func TestARefusalIsNotAskedForTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas, asked := &replicas{t: t, etcd: newEtcd(), all: map[string]*replica{}}, new(atomic.Int32)
		replicas.addWith("alone", time.Millisecond, func(of *engine.Engine) line.Local { return refusing{of, asked} })
		<-time.After(time.Second) // It has seen that the lock is free.
		_, err := replicas.at(0).Acquire(t.Context(), "default", by("alice", time.Hour))
		if got := asked.Load(); !errors.Is(err, lock.ErrRefused) || got != 1 {
			t.Errorf("%d requests, with %v", got, err)
		}
	})
}

// A caller whose place would be too far is refused at home, wherever it has come, and is told why.
func TestTheNumberOfWaitersIsBounded(t *testing.T) {
	for bound, limits := range map[lock.LineBound]engine.WaiterLimits{
		lock.LinePerLock: {PerLock: 5}, lock.LinePerNamespace: {PerNamespace: 5}, lock.LinePerHolder: {PerHolder: 5},
	} {
		synctest.Test(t, func(t *testing.T) {
			replicas := &replicas{t: t, etcd: newEtcd(), all: map[string]*replica{}, waiters: limits}
			for i := range 3 {
				replicas.add(fmt.Sprintf("replica-%d", i), time.Millisecond)
			}
			replicas.meet()
			replicas.hold(replicas.at(0), "first")
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for i := range 5 {
				all.Go(func() { _, _ = replicas.at(i).Acquire(ctx, "default", by(fmt.Sprint(i), time.Hour)) })
			}
			<-time.After(time.Second)
			for i := range 3 {
				_, err := replicas.at(i).Acquire(t.Context(), "default", by("last", time.Hour))
				if full, ok := errors.AsType[*lock.LineFullError](err); !ok || full.Bound != bound || full.Waiting != 5 {
					t.Errorf("%s at %d: %v", bound, i, err)
				}
			}
			cancel()
			all.Wait()
			<-time.After(time.Second)
			if _, err := replicas.at(0).Acquire(t.Context(), "default", by("last", time.Second)); !errors.Is(err, lock.ErrTimeout) {
				t.Errorf("%s, when the others have left: %v", bound, err)
			}
		})
	}
}
