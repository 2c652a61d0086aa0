package line_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/line"
)

// A home that takes back what no replica has taken ends that grant alone: the next home may have granted the lock to the
// same caller anew.
func TestAHomeTakesBackItsOwnGrantAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond)
		home, edge := replicas.all[replicas.home()], replicas.edges()[0]
		replicas.hold(home, "first")
		told := replicas.wait(t.Context(), edge, by("next", time.Hour))
		edge.isMute.Store(true) // Its word to take the lock does not come home.
		replicas.release(home, "first")
		<-time.After(10 * time.Millisecond)
		_, offered := replicas.etcd.holder()
		home.server.Stop()
		edge.isMute.Store(false)
		replicas.granted(told, 250*time.Millisecond)
		<-time.After(2 * time.Second)
		if owner, token := replicas.etcd.holder(); owner != "next" || token == offered {
			t.Errorf("the lock is held by %q with token %d, after it was offered with %d", owner, token, offered)
		}
	})
}

// unreleasing is an engine whose releases fail.
type unreleasing struct{ *engine.Engine }

// Release implements [lock.Backend].
func (unreleasing) Release(context.Context, string, v1alpha1.FullKey, lock.Proof) error {
	return lock.ErrUnavailable
}

// A release that fails at home is done by the replica that was asked for it.
func TestAReleaseThatFailsAtHomeIsDoneByItsReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := []string{"replica-0", "replica-1"}
		replicas := &replicas{t: t, etcd: newEtcd(), all: map[string]*replica{}}
		for _, name := range names {
			replicas.addWith(name, time.Millisecond, func(of *engine.Engine) line.Local {
				if name == line.HomeOf(types.NamespacedName{Namespace: "default", Name: key.ObjectName()}, names) {
					return unreleasing{of}
				}
				return of
			})
		}
		replicas.meet()
		home, edge := replicas.all[replicas.home()], replicas.edges()[0]
		replicas.hold(home, "first")
		told := replicas.wait(t.Context(), edge, by("next", time.Hour))
		if err := home.engine.Release(t.Context(), "default", key, lock.Proof{Owner: "first"}); err != nil {
			t.Fatal(err)
		}
		replicas.granted(told, time.Second)
		replicas.release(edge, "next")
		if owner := replicas.etcd.owner(); owner != "" {
			t.Errorf("a release has succeeded, and the lock is held by %q", owner)
		}
	})
}

// A caller that its replica cannot tell of the lock has its place for as long as any other whose replica dies.
func TestACallerWhoseReplicaDiesWhileItIsOfferedTheLockKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
		home, edges := replicas.all[replicas.home()], replicas.edges()
		replicas.hold(home, "first")
		lost, leave := context.WithCancel(t.Context())
		defer leave()
		replicas.wait(lost, edges[0], by("offered", time.Hour))
		next := replicas.wait(t.Context(), edges[1], by("next", time.Hour))
		edges[0].isDead.Store(true)
		edges[0].isSilent.Store(true)
		replicas.release(home, "first")
		<-time.After(10 * time.Millisecond)
		again := replicas.wait(t.Context(), edges[1], by("offered", time.Hour))
		replicas.granted(again, 3*time.Second)
		select {
		case err := <-next:
			t.Fatalf("the lock went to the next caller, too: %v", err)
		default:
		}
		replicas.release(edges[1], "offered")
		replicas.granted(next, time.Second)
	})
}
