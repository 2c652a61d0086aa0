package line_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/line"
	"forrst.dev/lock-operator/lock/rules"
)

// repeatedOwner is the owner token of a request that is sent several times.
var repeatedOwner = rules.HashedOwner([]byte("the secret of a request that is repeated"), true)

// wantOneGrant fails unless one of the calls of a request has the lock within the time, and the others know of it.
func (r *replicas) wantOneGrant(calls []chan error, within time.Duration) {
	r.t.Helper()
	isLate := time.After(within)
	grants := 0
	for i, told := range calls {
		select {
		case err := <-told:
			switch {
			case err == nil:
				grants++
			case !errors.Is(err, lock.ErrFoundElsewhere):
				r.t.Errorf("call %d is told %v", i, err)
			}
		case <-isLate:
			r.t.Fatalf("call %d is not answered within %v", i, within)
		}
	}
	if grants != 1 {
		r.t.Errorf("%d of %d calls were granted the lock", grants, len(calls))
	}
}

// isFoundElsewhere fails unless the call learns at once that another one of its request has the lock.
func (r *replicas) isFoundElsewhere(told chan error) {
	r.t.Helper()
	select {
	case err := <-told:
		if !errors.Is(err, lock.ErrFoundElsewhere) {
			r.t.Errorf("the call is told %v", err)
		}
	case <-time.After(500 * time.Millisecond): // Before its replica, which the home has declined, would wait by itself.
		r.t.Error("the call waits although its request has been granted the lock")
	}
}

// The calls of one request wait as one through whichever replicas they come: the grant of one ends the waits of all, and a
// release hands the lock to those behind them.
func TestARepeatedRequestAcrossReplicasWaitsOnce(t *testing.T) {
	for name, at := range map[string]func(home *replica, edges []*replica) []*replica{
		"at all replicas":            func(home *replica, edges []*replica) []*replica { return []*replica{home, edges[0], edges[1]} },
		"at the home last":           func(home *replica, edges []*replica) []*replica { return []*replica{edges[0], edges[1], home} },
		"at replicas without a line": func(_ *replica, edges []*replica) []*replica { return []*replica{edges[0], edges[1]} },
		"at one of these":            func(_ *replica, edges []*replica) []*replica { return []*replica{edges[0], edges[0]} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
				home, edges := replicas.all[replicas.home()], replicas.edges()
				replicas.hold(home, "first")
				var repeated []chan error
				for _, replica := range at(home, edges) {
					repeated = append(repeated, replicas.wait(t.Context(), replica, by(repeatedOwner, time.Hour)))
				}
				behind := replicas.wait(t.Context(), edges[1], by("behind", time.Hour))
				replicas.release(home, "first")
				replicas.wantOneGrant(repeated, 500*time.Millisecond)
				_, before := replicas.etcd.holder()
				// The line holds none of them back that a release could find.
				replicas.release(edges[0], repeatedOwner)
				replicas.granted(behind, time.Second)
				if owner, fencing := replicas.etcd.holder(); owner != "behind" || fencing <= before {
					t.Errorf("the lock is held by %q, with the fencing token %d after %d", owner, fencing, before)
				}
			})
		})
	}
}

// Two calls of one request that come at once to two replicas for a free lock have one grant.
func TestARepeatedRequestAcrossReplicasFindsAFreeLock(t *testing.T) {
	for try := range 20 {
		synctest.Test(t, func(t *testing.T) {
			replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
			var repeated []chan error
			for i := range 2 {
				told := make(chan error, 1)
				repeated = append(repeated, told)
				at := replicas.at(try + i)
				time.AfterFunc(time.Duration(try*i)*200*time.Microsecond, func() {
					_, err := at.Acquire(t.Context(), "default", by(repeatedOwner, time.Hour))
					told <- err
				})
			}
			replicas.wantOneGrant(repeated, 500*time.Millisecond)
		})
	}
}

// A release right after the grant, through another replica than that of the repetition, hands the lock to no repetition.
func TestAReleaseAtOnceIsNotForARepetitionAtAnotherReplica(t *testing.T) {
	for name, at := range map[string]func(home *replica, edges []*replica) *replica{
		"at the home":        func(home *replica, _ []*replica) *replica { return home },
		"at another replica": func(_ *replica, edges []*replica) *replica { return edges[0] },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
				home, edges := replicas.all[replicas.home()], replicas.edges()
				replicas.hold(home, "first")
				releasing, ended := at(home, edges), make(chan error, 1)
				go func() {
					_, err := releasing.Acquire(t.Context(), "default", by(repeatedOwner, time.Hour))
					if err == nil {
						err = releasing.Release(t.Context(), "default", key, lock.Proof{Owner: repeatedOwner})
					}
					ended <- err
				}()
				<-time.After(10 * time.Millisecond)
				repeated := replicas.wait(t.Context(), edges[1], by(repeatedOwner, time.Hour))
				replicas.release(home, "first")
				replicas.wantOneGrant([]chan error{ended, repeated}, 500*time.Millisecond)
				if owner := replicas.etcd.owner(); owner != "" {
					t.Errorf("the lock is held by %q", owner)
				}
			})
		})
	}
}

// A grant that the line has not made is that of the request, too: a call that does not wait is decided by its own replica.
// One that was made a moment before is found by a repetition that comes through any other.
func TestARepetitionIsToldOfAGrantAtAnotherReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
		home, edges := replicas.all[replicas.home()], replicas.edges()
		replicas.hold(home, "first")
		<-time.After(time.Second)
		waiting := replicas.wait(t.Context(), edges[0], by(repeatedOwner, time.Hour))
		home.slow("create", 100*time.Millisecond) // Or the call that waits would be quicker.
		if err := edges[1].engine.Release(t.Context(), "default", key, lock.Proof{Owner: "first"}); err != nil {
			t.Fatal(err)
		}
		replicas.hold(edges[1], repeatedOwner)
		replicas.isFoundElsewhere(waiting)
		for _, at := range []*replica{home, edges[0], edges[1]} {
			replicas.isFoundElsewhere(replicas.wait(t.Context(), at, by(repeatedOwner, time.Hour)))
		}
		<-time.After(time.Second)
		for name, at := range replicas.all {
			if asked, standing := at.Open(); asked+standing > 0 || at.HasWaiters() {
				t.Errorf("%s: %d questions are open, %d callers stand in line", name, asked, standing)
			}
		}
	})
}

// A call that waits at its own replica, since its home declines, is told as well.
func TestARepetitionThatTheHomeDeclinesIsToldOfItsGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := &replicas{t: t, etcd: newEtcd(), all: map[string]*replica{}}
		for i := range 3 {
			replicas.addWith(fmt.Sprintf("replica-%d", i), time.Millisecond, func(of *engine.Engine) line.Local { return declining{of} })
		}
		replicas.meet()
		edges := replicas.edges()
		replicas.hold(edges[0], "first")
		waiting := replicas.wait(t.Context(), edges[0], by(repeatedOwner, time.Hour))
		<-time.After(2 * time.Second) // It waits at its replica then.
		if !edges[0].HasWaiters() {
			t.Fatal("the caller does not wait at its replica")
		}
		edges[0].slow("create", 100*time.Millisecond)
		if err := edges[1].engine.Release(t.Context(), "default", key, lock.Proof{Owner: "first"}); err != nil {
			t.Fatal(err)
		}
		replicas.hold(edges[1], repeatedOwner)
		replicas.isFoundElsewhere(waiting)
	})
}

// The calls of a request whose home dies, at whatever moment of its grant, have one grant between them.
func TestARepeatedRequestOutlivesItsHome(t *testing.T) {
	for try := range 20 {
		after := time.Duration(try) * 211 * time.Microsecond
		synctest.Test(t, func(t *testing.T) {
			replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
			home, edges := replicas.all[replicas.home()], replicas.edges()
			replicas.hold(edges[0], "first")
			<-time.After(time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var repeated []chan error
			for _, at := range []*replica{edges[0], edges[1], edges[0]} {
				repeated = append(repeated, replicas.wait(ctx, at, by(repeatedOwner, time.Hour)))
			}
			dead := make(chan struct{})
			time.AfterFunc(after, func() {
				defer close(dead)
				home.kill()
			})
			replicas.release(edges[1], "first")
			<-dead
			replicas.wantOneGrant(repeated, 30*time.Second)
			if owner := replicas.etcd.owner(); owner != repeatedOwner {
				t.Errorf("killed after %v: the lock is held by %q", after, owner)
			}
		})
	}
}
