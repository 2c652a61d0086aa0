package line_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/line"
	"forrst.dev/lock-operator/lock/rules"
)

// wait waits for the lock in a goroutine of its own.
func (r *replicas) wait(ctx context.Context, at *replica, request lock.Request) chan error {
	told := make(chan error, 1)
	go func() {
		_, err := at.Acquire(ctx, "default", request)
		told <- err
	}()
	<-time.After(10 * time.Millisecond)
	return told
}

func (r *replicas) release(at *replica, owner string) {
	r.t.Helper()
	if err := at.Release(context.WithoutCancel(r.t.Context()), "default", key, lock.Proof{Owner: owner}); err != nil {
		r.t.Errorf("release of %s: %v", owner, err)
	}
}

// slow makes the requests of a kind take longer by the delay.
func (r *replica) slow(verb string, delay time.Duration) {
	r.before.Store(new(func(got string) {
		if got == verb {
			<-time.After(delay)
		}
	}))
}

// granted fails unless the caller is told within the time that it has the lock.
func (r *replicas) granted(told chan error, within time.Duration) {
	r.t.Helper()
	select {
	case err := <-told:
		if err != nil {
			r.t.Error(err)
		}
	case <-time.After(within):
		r.t.Fatalf("no grant for %v", within)
	}
}

// passOn has the home hand the lock on to a caller at a replica, so that the home alone knows of the grant at first.
func (r *replicas) passOn(home, to *replica, owner string) {
	r.t.Helper()
	r.hold(home, "first")
	told := r.wait(r.t.Context(), to, by(owner, time.Hour))
	r.release(home, "first")
	r.granted(told, time.Second)
}

// served are callers who get the lock one after the other.
type served struct {
	*replicas
	all sync.WaitGroup

	mu    sync.Mutex
	order []string
}

// come has a caller wait for the lock through a replica, use it for a while and release it.
func (s *served) come(at *replica, request lock.Request, use time.Duration) {
	s.all.Go(func() {
		if _, err := at.Acquire(s.t.Context(), "default", request); err != nil {
			s.t.Errorf("waiter %s: %v", request.Owner, err)
			return
		}
		s.mu.Lock()
		s.order = append(s.order, request.Owner)
		s.mu.Unlock()
		<-time.After(use)
		s.release(at, request.Owner)
	})
}

// wantInTurn waits for all, and fails unless they were served by their numbers.
func (s *served) wantInTurn(waiters int) {
	s.t.Helper()
	s.all.Wait()
	if !slices.IsSortedFunc(s.order, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }) || len(s.order) != waiters {
		s.t.Errorf("the order of grants is %v", s.order)
	}
}

// Of callers that come at once for a free lock, the first tries, and the line once for all others. None is lost if some
// leave meanwhile.
func TestAHerdAtTheHomeMakesFewRequests(t *testing.T) {
	for name, leaving := range map[string]int{"that stays": 0, "of which the first may leave": 25} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testHerd(t, leaving) })
		})
	}
}

func testHerd(t *testing.T, leaving int) {
	t.Helper()
	replicas := start(t, time.Millisecond, time.Millisecond)
	home := replicas.all[replicas.home()]
	home.slow("create", 20*time.Millisecond)
	writes, reads := replicas.etcd.requests()
	const callers = 50
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			if i < leaving {
				time.AfterFunc(10*time.Millisecond, leave)
			}
			owner := strconv.Itoa(i)
			_, err := home.Acquire(ctx, "default", by(owner, time.Hour))
			switch {
			case err == nil:
				<-time.After(50 * time.Millisecond) // The others stand in line then.
				replicas.release(home, owner)
			case ctx.Err() == nil:
				t.Errorf("caller %s: %v", owner, err)
			}
		})
	}
	all.Wait()
	nowWrites, nowReads := replicas.etcd.requests()
	// Two creates, a hand-off to each but the first, and the delete.
	if made := nowWrites - writes; leaving == 0 && (made > callers+2 || nowReads-reads > 1) {
		t.Errorf("%d writes and %d reads", made, nowReads-reads)
	}
}

// A caller whose wait ends in the moment of its grant is told either that it has the lock, or that it has not and
// nothing is held for it.
func TestAGrantAtTheVeryEndOfTheWaitIsNotLost(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			replicas := start(t, time.Millisecond)
			at := replicas.at(0)
			replicas.hold(at, "first")
			told := make(chan error, 1)
			go func() {
				_, err := at.Acquire(t.Context(), "default", by("next", 100*time.Millisecond))
				told <- err
			}()
			<-time.After(99 * time.Millisecond)
			replicas.release(at, "first")
			err := <-told
			<-time.After(time.Second)
			if owner := replicas.etcd.owner(); (owner == "next") != (err == nil) {
				t.Errorf("the caller is told %v, and the lock is held by %q", err, owner)
			}
		})
	}
}

// The waiters of a replica that reaches the others, but not the API server, are served elsewhere.
func TestAHomeWithoutTheAPIServerLosesItsLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
		home, edges := replicas.all[replicas.home()], replicas.edges()
		replicas.hold(edges[0], "first")
		told := replicas.wait(t.Context(), edges[1], by("next", time.Hour))
		atHome := replicas.wait(t.Context(), home, by("last", time.Hour))
		home.isDead.Store(true)
		replicas.release(edges[0], "first")
		served := make(chan error, 2)
		for at, told := range map[*replica]chan error{edges[1]: told, home: atHome} {
			go func() {
				err := <-told
				replicas.release(at, replicas.etcd.owner())
				served <- err
			}()
		}
		replicas.granted(served, 2*time.Second)
		replicas.granted(served, 2*time.Second)
	})
}

// An API server that fails ends no wait, at home as elsewhere.
func TestAWaitOutlastsAFailureAtItsBeginning(t *testing.T) {
	for _, isHome := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			replicas := start(t, time.Millisecond, time.Millisecond)
			at := replicas.edges()[0]
			if isHome {
				at = replicas.all[replicas.home()]
			}
			for _, each := range replicas.all {
				each.isDead.Store(true)
			}
			told := replicas.wait(t.Context(), at, by("next", time.Hour))
			<-time.After(300 * time.Millisecond)
			for _, each := range replicas.all {
				each.isDead.Store(false)
			}
			replicas.granted(told, 3*time.Second)
		})
	}
}

// A caller that comes while the lock is free for a moment stands behind those of other replicas.
func TestANewcomerDoesNotPassTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
		home, edges := replicas.all[replicas.home()], replicas.edges()
		replicas.hold(edges[0], "first")
		<-time.After(10 * time.Millisecond)
		first := replicas.wait(t.Context(), edges[0], by("a", time.Hour))
		home.slow("create", 50*time.Millisecond)
		replicas.release(edges[0], "first")
		<-time.After(10 * time.Millisecond)
		second := replicas.wait(t.Context(), edges[1], by("b", time.Hour))
		replicas.granted(first, time.Second)
		replicas.release(edges[0], "a")
		replicas.granted(second, time.Second)
	})
}

// A home grants the lock and dies before the caller hears of it, which leaves: the lock is not held until its ttl.
func TestAGrantThatWasNeverOfferedEnds(t *testing.T) {
	for name, leave := range map[string]struct{ wait, after time.Duration }{
		"the caller leaves before its stream breaks": {time.Hour, 100 * time.Millisecond},
		"the caller leaves after its stream breaks":  {time.Hour, 1300 * time.Millisecond},
		"the wait ends": {110 * time.Millisecond, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				replicas := start(t, time.Millisecond, 5*time.Second, 5*time.Second)
				home, edge := replicas.all[replicas.home()], replicas.edges()[0]
				replicas.hold(home, "first")
				<-time.After(6 * time.Second)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				told := replicas.wait(ctx, edge, by("next", leave.wait))
				home.isSilent.Store(true)
				replicas.release(home, "first")
				home.isDead.Store(true)
				time.AfterFunc(leave.after, cancel)
				if err := <-told; err == nil {
					t.Fatal("the caller has got the lock")
				}
				<-time.After(3 * time.Second)
				if owner := replicas.etcd.owner(); owner != "" {
					t.Errorf("the lock is held by %q", owner)
				}
			})
		})
	}
}

// A place that is taken up again is not lost when another replica becomes home.
func TestAPlaceThatIsTakenUpOutlivesItsHome(t *testing.T) {
	kill := func(_ *replicas, home *replica) { home.kill() }
	drain := func(_ *replicas, home *replica) { home.Drain(home.t.Context()) }
	forget := func(r *replicas, home *replica) { r.forget(home) }
	for name, test := range map[string]struct {
		// back is for how long the caller has been back when the home goes.
		back time.Duration
		// isAtHome says that it comes back to its home.
		isAtHome bool
		goAway   func(*replicas, *replica)
	}{
		"its caller is back":                                   {back: 200 * time.Millisecond, goAway: kill},
		"its caller has just come back":                        {back: 20 * time.Millisecond, goAway: kill},
		"its caller has just come back to one that drains":     {back: 20 * time.Millisecond, goAway: drain},
		"its caller has just come back to one that is dropped": {back: 20 * time.Millisecond, goAway: forget},
		"its caller has just come back to its home":            {back: 20 * time.Millisecond, isAtHome: true, goAway: drain},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
				home, edges := replicas.all[replicas.home()], replicas.edges()
				replicas.hold(edges[0], "first")
				if err := <-replicas.wait(t.Context(), edges[0], by("a", 100*time.Millisecond)); !errors.Is(err, lock.ErrTimeout) {
					t.Fatal(err)
				}
				var mu sync.Mutex
				var order []string
				var all sync.WaitGroup
				come := func(at *replica, owner string) {
					all.Go(func() {
						if _, err := at.Acquire(t.Context(), "default", by(owner, time.Hour)); err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						order = append(order, owner)
						mu.Unlock()
						replicas.release(edges[0], owner)
					})
				}
				come(edges[0], "b")
				<-time.After(200 * time.Millisecond)
				again := edges[0]
				if test.isAtHome {
					again = home
				}
				come(again, "a")
				<-time.After(test.back)
				test.goAway(replicas, home)
				<-time.After(2 * time.Second)
				replicas.release(edges[0], "first")
				all.Wait()
				if !slices.Equal(order, []string{"a", "b"}) {
					t.Errorf("the order of grants is %v", order)
				}
			})
		})
	}
}

// The lines of a home that goes come to others, which may be full. None of those that it has let wait is refused.
func TestNoAcceptedCallerIsRefusedWhenItsHomeGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := &replicas{t: t, etcd: newEtcd(), all: map[string]*replica{}, waiters: engine.WaiterLimits{PerHolder: 3}}
		for i := range 3 {
			replicas.add(fmt.Sprintf("replica-%d", i), time.Millisecond)
		}
		replicas.meet()
		first, next := replicas.home(), replicas.nextHome().Self()
		other := by("other", time.Hour)
		for i := 0; ; i++ {
			other.Key = fmt.Sprintf("billing:%d", i)
			if line.HomeOf(types.NamespacedName{Namespace: "default", Name: other.FullKey().ObjectName()}, replicas.names()) == next {
				break
			}
		}
		edge := replicas.all[slices.DeleteFunc(replicas.names(), func(name string) bool { return name == first || name == next })[0]]
		refused := make(chan error, 10)
		for _, request := range []lock.Request{by("first", 0), other} {
			request.Wait = 0
			if _, err := edge.Acquire(t.Context(), "default", request); err != nil {
				t.Fatal(err)
			}
			request.Wait = time.Hour
			for i := range 3 {
				of := request
				of.Owner = fmt.Sprint(i)
				go func() {
					_, err := edge.Acquire(t.Context(), "default", of)
					refused <- err
				}()
			}
		}
		<-time.After(time.Second)
		replicas.all[first].kill()
		select {
		case err := <-refused:
			t.Error(err)
		case <-time.After(5 * time.Second):
		}
		waiting, _, err := edge.Waiters(t.Context(), "default", "", 100)
		if err != nil || len(waiting) != 6 {
			t.Errorf("%d callers wait: %v", len(waiting), err)
		}
	})
}

// A wait that the home declines, and that then ends, has timed out.
func TestAWaitThatIsDeclinedTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := &replicas{t: t, etcd: newEtcd(), all: map[string]*replica{}}
		for i := range 2 {
			replicas.addWith(fmt.Sprintf("replica-%d", i), time.Millisecond, func(of *engine.Engine) line.Local { return declining{of} })
		}
		replicas.meet()
		edge := replicas.edges()[0]
		replicas.hold(edge, "first")
		for _, wait := range []time.Duration{time.Millisecond, 300 * time.Millisecond, 5 * time.Second, 25 * time.Second} {
			began := time.Now()
			_, err := edge.Acquire(t.Context(), "default", by("next", wait))
			if took := time.Since(began); !errors.Is(err, lock.ErrTimeout) || took > wait+100*time.Millisecond {
				t.Errorf("a wait of %v has ended after %v: %v", wait, took, err)
			}
		}
	})
}

// A home that does not end one wait loses the caller, and not all those of its replica.
func TestAWaitThatTheHomeDoesNotEndBreaksNoStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
		home, edge := replicas.all[replicas.home()], replicas.edges()[0]
		replicas.hold(edge, "first")
		home.slow("create", time.Minute)
		told := replicas.wait(t.Context(), edge, by("next", time.Second))
		replicas.release(edge, "first")
		for range 150 {
			<-time.After(100 * time.Millisecond)
			if ready, connected := edge.Peers(); connected != ready {
				t.Fatal("the stream has broken")
			}
		}
		replicas.granted(told, time.Millisecond)
	})
}

// An ID is of one caller: the home forgets none of those that wait.
func TestAQuestionThatIsRepeatedTakesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond)
		home, edge := replicas.all[replicas.home()], replicas.edges()[0]
		replicas.hold(edge, "first")
		ctx, leave := context.WithCancel(t.Context())
		told := replicas.wait(ctx, edge, by("next", time.Hour))
		line.Repeat(edge.Line, replicas.home(), "default", by("next", time.Hour))
		<-time.After(time.Second)
		waiting, _, err := home.Waiters(t.Context(), "default", key, 10)
		if err != nil || len(waiting) != 1 {
			t.Errorf("%d callers wait: %v", len(waiting), err)
		}
		leave()
		if err := <-told; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		<-time.After(time.Second)
		if home.HasWaiters() {
			t.Error("a caller that has left stands in line")
		}
	})
}

// Each place that a caller takes has a number of its own: by it a home knows whether a grant that it finds can have
// reached the caller.
func TestEachTryOfAWaitIsNumbered(t *testing.T) {
	for name, test := range map[string]struct {
		local func(*engine.Engine) line.Local
		kill  bool
		want  string
	}{
		"the first home grants":  {local: func(of *engine.Engine) line.Local { return of }, want: "^00000001$"},
		"the second home grants": {local: func(of *engine.Engine) line.Local { return of }, kill: true, want: "^00000002$"},
		// Each time that the home declines, the replica asks with the next number. The double of the home may have the lock meanwhile.
		"the home declines": {local: func(of *engine.Engine) line.Local { return declining{of} }, want: "[2468]$"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				replicas := &replicas{t: t, etcd: newEtcd(), all: map[string]*replica{}}
				for i := range 3 {
					replicas.addWith(fmt.Sprintf("replica-%d", i), time.Millisecond, test.local)
				}
				replicas.meet()
				home, edge := replicas.all[replicas.home()], replicas.edges()[0]
				if test.kill {
					replicas.hold(edge, "first")
				}
				told := replicas.wait(t.Context(), edge, by("next", time.Hour))
				if test.kill {
					home.kill()
					<-time.After(2 * time.Second)
					replicas.release(edge, "first")
				}
				replicas.granted(told, time.Second)
				granted, err := edge.Get(t.Context(), "default", key)
				if err != nil {
					t.Fatal(err)
				}
				if _, try := rules.SplitTry(granted.Annotations[v1alpha1.AcquisitionAnnotation]); !regexp.MustCompile(test.want).MatchString(try) {
					t.Errorf("the lock records try %s, not %s", try, test.want)
				}
			})
		})
	}
}

// A caller that moves with its place leaves none behind: once served, it comes again as the last.
func TestAPlaceThatMovesIsNotDoubled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
		home, edges := replicas.all[replicas.home()], replicas.edges()
		replicas.hold(edges[0], "first")
		first := replicas.wait(t.Context(), edges[0], by("ci", time.Hour))
		second := replicas.wait(t.Context(), edges[0], by("b", time.Hour))
		third := replicas.wait(t.Context(), edges[0], by("c", time.Hour))
		<-time.After(time.Second)
		home.Drain(t.Context())
		replicas.release(edges[0], "first")
		replicas.granted(first, time.Second)
		replicas.release(edges[0], "ci")
		replicas.granted(second, time.Second)
		<-time.After(500 * time.Millisecond)
		again := replicas.wait(t.Context(), edges[0], by("ci", time.Hour))
		replicas.release(edges[0], "b")
		replicas.granted(third, time.Second)
		replicas.release(edges[0], "c")
		replicas.granted(again, time.Second)
	})
}
