package line_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/lock/line"
)

// nextHome is home after the first.
func (r *replicas) nextHome() *replica {
	first := r.home()
	return r.all[line.HomeOf(types.NamespacedName{Namespace: "default", Name: key.ObjectName()},
		slices.DeleteFunc(r.names(), func(name string) bool { return name == first }))]
}

// callers are those of replicas that may die.
type callers struct {
	*replicas
	mu sync.Mutex
	// order is that of their grants.
	order []string
	all   sync.WaitGroup
}

// come lets a caller wait, which then gives the lock back at another replica.
func (c *callers) come(ctx context.Context, at, back *replica, owner string) {
	c.t.Helper()
	c.all.Go(func() {
		if _, err := at.Acquire(ctx, "default", by(owner, time.Hour)); err != nil {
			return // Its replica has died, or it has left.
		}
		c.mu.Lock()
		c.order = append(c.order, owner)
		c.mu.Unlock()
		c.release(back, owner) // it is released also if its caller has left
	})
	<-time.After(10 * time.Millisecond)
}

// A caller loses its connection when its replica dies. If that was home to the line, the next home has its place.
func TestACallerAtAHomeThatDiesKeepsItsPlace(t *testing.T) {
	type world struct {
		*callers
		home, next, third *replica
	}
	for name, test := range map[string]struct {
		// meanwhile is what happens while the caller waits.
		meanwhile func(w world)
		// after is how long after the death of its replica it comes again.
		after time.Duration
		want  []string
	}{
		"it comes again at once": {
			meanwhile: func(world) { <-time.After(2 * time.Second) },
			after:     time.Millisecond, want: []string{"a", "b"},
		},
		"it comes again as long as places are kept": {
			meanwhile: func(world) { <-time.After(2 * time.Second) },
			after:     4500 * time.Millisecond, want: []string{"a", "b"},
		},
		"it comes again too late": {
			meanwhile: func(world) { <-time.After(2 * time.Second) },
			after:     8 * time.Second, want: []string{"b", "a"},
		},
		"it has not waited for long": {
			meanwhile: func(world) { <-time.After(500 * time.Millisecond) },
			after:     time.Millisecond, want: []string{"b", "a"},
		},
		"the next home has died before": {
			meanwhile: func(w world) {
				<-time.After(2 * time.Second)
				w.next.kill()
				<-time.After(2 * time.Second)
			},
			after: time.Millisecond, want: []string{"a", "b"},
		},
		"its home has not reached the next one for a while": {
			meanwhile: func(w world) {
				<-time.After(2 * time.Second)
				w.home.isSilent.Store(true)
				<-time.After(10 * time.Second)
				w.home.isSilent.Store(false)
				<-time.After(5 * time.Second)
			},
			after: time.Millisecond, want: []string{"a", "b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
				w := world{callers: &callers{replicas: replicas}, home: replicas.all[replicas.home()], next: replicas.nextHome()}
				for _, edge := range replicas.edges() {
					if edge != w.next {
						w.third = edge
					}
				}
				replicas.hold(w.third, "first")
				w.come(t.Context(), w.home, w.third, "a")
				w.come(t.Context(), w.third, w.third, "b")
				test.meanwhile(w)
				w.home.isMute.Store(true) // It has no last word.
				w.home.kill()
				<-time.After(test.after)
				w.come(t.Context(), w.third, w.third, "a")
				<-time.After(2 * time.Second)
				replicas.release(w.third, "first")
				w.all.Wait()
				if !slices.Equal(w.order, test.want) {
					t.Errorf("the order of grants is %v", w.order)
				}
			})
		})
	}
}

// A place at home is no other one's once its caller has left, or has got the lock.
func TestAPlaceThatIsOverIsNotLeftWithTheNextHome(t *testing.T) {
	for name, hasLock := range map[string]bool{"its caller has left": false, "its caller has got the lock": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				replicas := start(t, time.Millisecond, time.Millisecond)
				c := &callers{replicas: replicas}
				home, next := replicas.all[replicas.home()], replicas.nextHome()
				replicas.hold(next, "first")
				ctx, leave := context.WithCancel(t.Context())
				c.come(ctx, home, next, "a")
				c.come(t.Context(), next, next, "b")
				<-time.After(2 * time.Second)
				if hasLock {
					replicas.release(next, "first")
					c.all.Wait()
					replicas.hold(next, "first")
					c.come(t.Context(), next, next, "b")
				}
				leave()
				<-time.After(10 * time.Second)
				home.isMute.Store(true)
				home.kill()
				c.order = nil
				<-time.After(time.Second)
				c.come(t.Context(), next, next, "a")
				<-time.After(2 * time.Second)
				replicas.release(next, "first")
				c.all.Wait()
				if !slices.Equal(c.order, []string{"b", "a"}) {
					t.Errorf("the order of grants is %v", c.order)
				}
			})
		})
	}
}

// A replica that only another one does not reach is home still, and knows best which places it has.
func TestAPlaceDoesNotComeBackToTheHomeThatLeftIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
		c := &callers{replicas: replicas}
		home, next := replicas.all[replicas.home()], replicas.nextHome()
		third := replicas.edges()[0]
		if third == next {
			third = replicas.edges()[1]
		}
		replicas.hold(third, "first")
		c.come(t.Context(), home, third, "a")
		b := replicas.wait(t.Context(), third, by("b", time.Hour))
		c.come(t.Context(), third, third, "c")
		<-time.After(2 * time.Second)
		next.server.Stop()
		replicas.release(third, "first")
		replicas.granted(b, time.Second)
		<-time.After(time.Second)
		c.come(t.Context(), home, third, "a")
		replicas.release(third, "b")
		c.all.Wait()
		if !slices.Equal(c.order, []string{"a", "c", "a"}) {
			t.Errorf("the order of grants is %v", c.order)
		}
	})
}
