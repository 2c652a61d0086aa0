package line_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/line"
)

// ahead is an engine whose clock is ahead.
type ahead struct {
	*engine.Engine
	by *atomic.Int64
}

func (a ahead) Now() time.Time { return a.Engine.Now().Add(time.Duration(a.by.Load())) }

// clocks tell by how much the clock of each replica is ahead.
type clocks map[string]*atomic.Int64

// startAhead starts two replicas whose clocks may be ahead.
func startAhead(t *testing.T) (*replicas, clocks) {
	t.Helper()
	started, all := &replicas{t: t, etcd: newEtcd(), all: map[string]*replica{}}, clocks{}
	for i := range 2 {
		name := fmt.Sprintf("replica-%d", i)
		all[name] = new(atomic.Int64)
		started.addWith(name, time.Millisecond, func(of *engine.Engine) line.Local { return ahead{of, all[name]} })
	}
	started.meet()
	return started, all
}

// set sets all clocks.
func (c clocks) set(by time.Duration) {
	for _, each := range c {
		each.Store(int64(by))
	}
}

// A grant that has expired by the clock of the caller's replica, which is wrong, is not left until its ttl.
func TestAGrantThatHasExpiredByAWrongClockIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas, clocks := startAhead(t)
		edge := replicas.edges()[0]
		replicas.hold(edge, "first")
		told := replicas.wait(t.Context(), edge, by("next", time.Hour))
		clocks.set(24 * time.Hour)
		replicas.release(edge, "first")
		if err := <-told; !errors.Is(err, lock.ErrUnavailable) {
			t.Fatalf("the caller is told %v", err)
		}
		clocks.set(0)
		<-time.After(30 * time.Second)
		if owner := replicas.etcd.owner(); owner != "" {
			t.Errorf("the lock is held by %q", owner)
		}
	})
}

// A caller gets a lock whose ttl is shorter than the difference of two clocks: what was stamped by one is not judged by
// the other.
func TestAGrantIsNotJudgedByTheClockOfAnotherReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas, clocks := startAhead(t)
		home, edge := replicas.all[replicas.home()], replicas.edges()[0]
		clocks[edge.Self()].Store(int64(500 * time.Millisecond))
		replicas.hold(home, "first")
		request := by("next", time.Second)
		request.TTL = 400 * time.Millisecond
		told := replicas.wait(t.Context(), edge, request)
		<-time.After(100 * time.Millisecond)
		replicas.release(home, "first")
		replicas.granted(told, 100*time.Millisecond)
	})
}
