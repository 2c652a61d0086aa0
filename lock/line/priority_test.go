package line_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"forrst.dev/lock-operator/lock"
)

// One that comes late, at any replica, is served before those that came earlier with lower priorities, and after the
// present holder.
func TestTheHighestPriorityIsServedFirstAcrossReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
		replicas.hold(replicas.at(0), "first")
		<-time.After(time.Second)
		var mu sync.Mutex
		var order []string
		var all sync.WaitGroup
		callers := []struct {
			owner    string
			priority int32
		}{{"a", 0}, {"b", 0}, {"c", -1}, {"d", 0}, {"e", 5}, {"f", 5}, {"g", 7}}
		for i, caller := range callers {
			at := replicas.at(i % 3)
			all.Go(func() {
				request := by(caller.owner, time.Hour)
				request.Priority = caller.priority
				if _, err := at.Acquire(t.Context(), "default", request); err != nil {
					t.Errorf("%s: %v", caller.owner, err)
					return
				}
				mu.Lock()
				order = append(order, caller.owner)
				mu.Unlock()
				<-time.After(5 * time.Millisecond)
				if err := at.Release(t.Context(), "default", key, lock.Proof{Owner: caller.owner}); err != nil {
					t.Errorf("release of %s: %v", caller.owner, err)
				}
			})
			<-time.After(2 * time.Millisecond)
		}
		<-time.After(time.Second)
		if waiting, _, err := replicas.at(1).Waiters(t.Context(), "default", key, 10); err != nil || len(waiting) != len(callers) {
			t.Errorf("%d wait: %v", len(waiting), err)
		}
		if len(order) > 0 {
			t.Errorf("granted while the lock is held: %v", order)
		}
		replicas.release(replicas.at(0), "first")
		all.Wait()
		if want := []string{"g", "e", "f", "a", "b", "d", "c"}; !slices.Equal(order, want) {
			t.Errorf("the order of grants is %v, want %v", order, want)
		}
	})
}

// A guest has authorized no priority.
func TestAGuestHasNoPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas, guest := startWithGuest(t, func(r *replicas) { r.server = []grpc.ServerOption{asGuests("alice")} })
		home := replicas.all[replicas.home()]
		replicas.hold(home, "first")
		<-time.After(time.Second)
		request := by("guest", time.Minute)
		request.Priority = 5
		go func() { _, _ = guest.Acquire(t.Context(), "default", request) }()
		<-time.After(time.Second)
		waiting, _, err := home.Waiters(t.Context(), "default", key, 10)
		if err != nil || len(waiting) != 1 || waiting[0].Priority != 0 {
			t.Errorf("waiting: %+v, %v", waiting, err)
		}
		replicas.release(home, "first")
		<-time.After(time.Second)
	})
}
