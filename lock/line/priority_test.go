package line_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
)

// One that comes late, at any replica, is served before those that came earlier with lower priorities, and after the
// present holder.
func TestTheHighestPriorityIsServedFirstAcrossReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
		replicas.hold(replicas.at(0), "first")
		<-time.After(time.Second)
		served := &served{replicas: replicas}
		callers := []struct {
			owner    string
			priority int32
		}{{"a", 0}, {"b", 0}, {"c", -1}, {"d", 0}, {"e", 5}, {"f", 5}, {"g", 7}}
		for i, caller := range callers {
			request := by(caller.owner, time.Hour)
			request.Priority = caller.priority
			served.come(replicas.at(i), request, 5*time.Millisecond)
			<-time.After(2 * time.Millisecond)
		}
		<-time.After(time.Second)
		if waiting, _, err := replicas.at(1).Waiters(t.Context(), "default", key, 10); err != nil || len(waiting) != len(callers) {
			t.Errorf("%d wait: %v", len(waiting), err)
		}
		if len(served.order) > 0 {
			t.Errorf("granted while the lock is held: %v", served.order)
		}
		replicas.release(replicas.at(0), "first")
		served.all.Wait()
		if want := []string{"g", "e", "f", "a", "b", "d", "c"}; !slices.Equal(served.order, want) {
			t.Errorf("the order of grants is %v, want %v", served.order, want)
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
