package keywatch_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"forrst.dev/lock-operator/lock/engine/keywatch"
)

// comeAndGo uses a lock again and again, and from stop on until the test ends.
func (f *fixture) comeAndGo(stop <-chan struct{}, random *rand.Rand, user int) {
	for round := 0; ; round++ {
		release := f.Use(numbered(user), nil, random.IntN(2) == 0)
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(random.Int64N(int64(time.Minute)))):
		}
		release()
		pause := time.Duration(random.Int64N(int64(time.Second)))
		if round%5 == 4 {
			pause = 2 * time.Minute // Its watch ends.
		}
		time.Sleep(pause) //nolint:forbidigo // in a bubble
	}
}

// writeAny changes locks until stop.
func (s *server) writeAny(stop <-chan struct{}, random *rand.Rand, locks int) {
	exists := map[int]bool{}
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(random.Int64N(int64(time.Second)))):
		}
		number := random.IntN(locks)
		change := watch.Added
		if exists[number] {
			change = []watch.EventType{watch.Modified, watch.Deleted}[random.IntN(2)]
		}
		exists[number] = change != watch.Deleted
		s.write(numbered(number), change)
	}
}

// Users come and go, more than may be watched, while the locks change, and lists may be behind.
func TestNoChangeIsLostOfALockThatIsWatched(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer()
				server.isOld, server.maxLag = seed%2 == 0, 20
				f := start(t, server)
				const users = keywatch.MaxNames + keywatch.MaxNames/4
				stop := make(chan struct{})
				var parts sync.WaitGroup
				for user := range users {
					parts.Go(func() { f.comeAndGo(stop, rand.New(rand.NewPCG(seed, uint64(user))), user) })
				}
				parts.Go(func() { server.writeAny(stop, rand.New(rand.NewPCG(seed, users)), users) })
				pass(15 * time.Minute)
				close(stop)
				parts.Wait() // Every lock is in use from now on.
				pass(keywatch.BriefFor)
				server.sendBookmarks()
				synctest.Wait()
				watched, want := server.open(), map[types.NamespacedName]string{}
				if made := len(server.made()); len(watched) != keywatch.MaxNames || made < 2*keywatch.MaxNames {
					t.Errorf("%d are watched after %d requests; the test shows nothing", len(watched), made)
				}
				present := server.present()
				for _, name := range watched {
					if version, exists := present[name]; exists {
						want[name] = version
					}
				}
				f.shown.mu.Lock()
				defer f.shown.mu.Unlock()
				if diff := cmp.Diff(want, f.shown.locks); diff != "" {
					t.Errorf("locks (-stored +shown):\n%s", diff)
				}
			})
		})
	}
}
