package line_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/lock"
)

// meets makes a fate that of the next write, and another one that of those after it.
func (r *replica) meets(next, others fate) {
	var isOver atomic.Bool
	r.fates.Store(new(func() fate {
		if isOver.CompareAndSwap(false, true) {
			return next
		}
		return others
	}))
}

// abandonedCalls are those of an owner that takes the lock again.
var abandonedCalls = map[string]func(context.Context, *replica) error{
	"a release": func(ctx context.Context, at *replica) error {
		return at.engine.Release(ctx, "default", key, lock.Proof{Owner: "ci"})
	},
	"a renewal": func(ctx context.Context, at *replica) error {
		_, err := at.engine.Renew(ctx, "default", key, lock.Proof{Owner: "ci"}, 10*time.Second)
		return err
	},
}

// A call that was given up goes on by itself after a write without an answer. It touches no later grant to the same owner.
func TestAnAbandonedCallLeavesTheNextGrantAlone(t *testing.T) {
	for name, call := range abandonedCalls {
		for at, before := range map[string]func(*replica, *replica) *replica{
			"that reads the lock":     func(_, edge *replica) *replica { return edge },
			"that knows of the grant": func(home, _ *replica) *replica { return home },
		} {
			t.Run(name+" "+at, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					replicas := start(t, time.Millisecond, time.Millisecond)
					home, edge := replicas.all[replicas.home()], replicas.edges()[0]
					abandoned := before(home, edge)
					replicas.hold(home, "ci")
					<-time.After(100 * time.Millisecond)
					abandoned.meets(lost, answered)
					var reads atomic.Int32
					abandoned.before.Store(new(func(verb string) {
						// It reads the lock before its write, if it does not know of the grant, and is cut off after that.
						if verb == "get" && (abandoned == home || reads.Add(1) > 1) {
							<-time.After(2 * time.Second)
						}
					}))
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						_ = call(t.Context(), abandoned) // It may be told either.
					}()
					<-time.After(100 * time.Millisecond)
					// Its caller asks the other replica, and takes the lock again after another one.
					other := home
					if abandoned == home {
						other = edge
					}
					if err := other.engine.Release(t.Context(), "default", key, lock.Proof{Owner: "ci"}); err != nil {
						t.Fatal(err)
					}
					for _, owner := range []string{"another", "ci"} {
						if _, err := other.engine.Acquire(t.Context(), "default", by(owner, 0)); err != nil {
							t.Fatal(err)
						}
						if owner == "another" {
							if err := other.engine.Release(t.Context(), "default", key, lock.Proof{Owner: owner}); err != nil {
								t.Fatal(err)
							}
						}
					}
					until := replicas.etcd.expires()
					<-ended
					<-time.After(time.Minute)
					if owner, expires := replicas.etcd.owner(), replicas.etcd.expires(); owner != "ci" || !expires.Equal(until) {
						t.Errorf("the lock is held by %q until %v, and was to be until %v", owner, expires, until)
					}
				})
			})
		}
	}
}

// The same for grants that are handed on within one object.
func TestAnAbandonedCallLeavesAGrantThatWasHandedOnAlone(t *testing.T) {
	for name, call := range abandonedCalls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				replicas := start(t, time.Millisecond, time.Millisecond)
				home, edge := replicas.all[replicas.home()], replicas.edges()[0]
				replicas.hold(home, "ci")
				another := replicas.wait(t.Context(), home, by("another", time.Hour))
				<-time.After(100 * time.Millisecond)
				edge.meets(lost, answered)
				var reads atomic.Int32
				edge.before.Store(new(func(verb string) {
					if verb == "get" && reads.Add(1) > 1 {
						<-time.After(2 * time.Second)
					}
				}))
				ended := make(chan error, 1)
				go func() { ended <- call(t.Context(), edge) }()
				<-time.After(100 * time.Millisecond)
				replicas.release(home, "ci")
				replicas.granted(another, time.Second)
				again := replicas.wait(t.Context(), home, by("ci", time.Hour))
				replicas.release(home, "another")
				replicas.granted(again, time.Second)
				until := replicas.etcd.expires()
				if err := <-ended; err == nil {
					t.Error("the call is told that it has succeeded")
				}
				if owner, expires := replicas.etcd.owner(), replicas.etcd.expires(); owner != "ci" || !expires.Equal(until) {
					t.Errorf("the lock is held by %q until %v, and was to be until %v", owner, expires, until)
				}
			})
		})
	}
}

// A renewal of one version that the home has made, and could not tell, is not refused as stale: its caller would count
// on the former expiry.
func TestAConditionalRenewalByASilentHomeIsNotStale(t *testing.T) {
	for name, hide := range map[string]func(home, edge *replica){
		"the home is slow":        func(home, _ *replica) { home.slow("update", 700*time.Millisecond) },
		"the answer is lost":      func(_, edge *replica) { edge.isDeaf.Store(true) },
		"the home gets no answer": func(home, _ *replica) { home.meets(doneUnanswered, answered); home.slow("get", 10*time.Second) },
		"the home is killed by then": func(home, _ *replica) {
			home.slow("update", 400*time.Millisecond)
			time.AfterFunc(450*time.Millisecond, home.kill)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				replicas := start(t, time.Millisecond, time.Millisecond)
				home, edge := replicas.all[replicas.home()], replicas.edges()[0]
				replicas.passOn(home, edge, "next")
				<-time.After(100 * time.Millisecond)
				held, err := edge.Get(t.Context(), "default", key)
				if err != nil {
					t.Fatal(err)
				}
				hide(home, edge)
				renewed, err := edge.Renew(t.Context(), "default", key, lock.Proof{Owner: "next", ResourceVersion: held.ResourceVersion}, time.Minute)
				<-time.After(15 * time.Second)
				switch expires := replicas.etcd.expires(); {
				case errors.Is(err, lock.ErrStale):
					t.Error("the renewal is refused as stale")
				case err == nil && expires.Before(renewed.Spec.ExpireTime.Time):
					t.Errorf("the lock expires %v before what the holder was told", renewed.Spec.ExpireTime.Sub(expires))
				}
			})
		})
	}
}

// A grant of a home that has died is ended however late it comes: no caller knows of it.
func TestALateGrantOfAHomeThatHasDiedIsEnded(t *testing.T) {
	const late = 10 * time.Second
	t.Run("after the wait has ended", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			replicas := start(t, time.Millisecond, time.Millisecond)
			home, edge := replicas.all[replicas.home()], replicas.edges()[0]
			home.late.Store(int64(late))
			replicas.hold(home, "first")
			told := replicas.wait(t.Context(), edge, by("next", 5*time.Second))
			home.meets(doneLater, lost)
			home.slow("get", time.Second) // It does not learn that the write is not done, and does not repeat it.
			go func() {
				_ = home.Release(context.WithoutCancel(t.Context()), "default", key, lock.Proof{Owner: "first"})
			}()
			<-time.After(100 * time.Millisecond)
			home.kill()
			if err := <-told; !errors.Is(err, lock.ErrTimeout) {
				t.Errorf("the caller is told %v", err)
			}
			<-time.After(late)
			if owner := replicas.etcd.owner(); owner != "next" && owner != "" {
				t.Fatalf("the lock is held by %q", owner)
			}
			<-time.After(time.Minute)
			if owner := replicas.etcd.owner(); owner != "" {
				t.Errorf("the lock is held by %q still", owner)
			}
		})
	})
	t.Run("after the caller has had the lock", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			replicas := start(t, time.Millisecond, time.Millisecond)
			home, edge := replicas.all[replicas.home()], replicas.edges()[0]
			home.late.Store(int64(late))
			replicas.hold(edge, "first")
			told := replicas.wait(t.Context(), edge, by("next", time.Hour))
			home.meets(doneLater, lost)
			home.slow("get", time.Second)
			replicas.release(edge, "first") // The home creates the lock, which comes late.
			<-time.After(100 * time.Millisecond)
			home.kill()
			replicas.granted(told, 5*time.Second)
			if owner := replicas.etcd.owner(); owner != "next" {
				t.Fatalf("the lock is held by %q", owner)
			}
			replicas.release(edge, "next")
			<-time.After(late)
			if owner := replicas.etcd.owner(); owner != "next" && owner != "" {
				t.Fatalf("the lock is held by %q", owner)
			}
			<-time.After(time.Minute)
			if owner := replicas.etcd.owner(); owner != "" {
				t.Errorf("the lock is held by %q still", owner)
			}
		})
	})
}

// A release keeps to the deadline of its caller, and is completed.
func TestAReleaseKeepsToItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond)
		home, edge := replicas.all[replicas.home()], replicas.edges()[0]
		replicas.passOn(home, edge, "next")
		<-time.After(100 * time.Millisecond)
		home.isSilent.Store(true)
		edge.slow("get", 2*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		if err := edge.Release(ctx, "default", key, lock.Proof{Owner: "next"}); !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the caller is told %v", err)
		}
		if took := time.Since(began); took > 150*time.Millisecond {
			t.Errorf("it takes %v", took)
		}
		<-time.After(5 * time.Second)
		if owner := replicas.etcd.owner(); owner != "" {
			t.Errorf("the lock is held by %q still", owner)
		}
	})
}
