package line_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/lock"
)

// A replica that stops is gone from the members before it says so. Its callers leave it as one that drains: none is in
// doubt, so nothing is asked of the API server about grants that it may have made.
func TestCallersLeaveAReplicaThatIsNoMemberAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
		home, edges := replicas.all[replicas.home()], replicas.edges()
		replicas.hold(edges[0], "first")
		callers := &served{replicas: replicas}
		for i := range 30 {
			callers.come(replicas.at(i), by(fmt.Sprint(i), time.Hour), 0)
			<-time.After(2 * time.Millisecond)
		}
		brief := replicas.wait(t.Context(), edges[0], by("brief", 5*time.Second))
		replicas.forget(home)
		<-time.After(time.Second)
		if home.HasWaiters() {
			t.Error("callers stand in a line of a replica that is no member any more")
		}
		_, reads := replicas.etcd.requests()
		if err := <-brief; !errors.Is(err, lock.ErrTimeout) {
			t.Error(err)
		}
		<-time.After(5 * time.Second)
		if _, now := replicas.etcd.requests(); now-reads > 9*4/(5*3)+1 { // The head reads its lock every 3.75 to 5 s.
			t.Errorf("the end of a wait has cost %d reads", now-reads)
		}
		replicas.release(edges[0], "first")
		callers.wantInTurn(30)
		for name, at := range replicas.all {
			if sought := at.engine.Waits().LookedFor; sought > 0 {
				t.Errorf("%s looks for %d grants", name, sought)
			}
		}
	})
}
