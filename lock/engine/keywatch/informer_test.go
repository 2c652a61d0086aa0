package keywatch_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/engine/keywatch"
)

const namespace = "default"

// pass advances the clock of the bubble; no test really waits.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // steps the clock of the bubble
	synctest.Wait()
}

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func numbered(number int) types.NamespacedName { return named(fmt.Sprintf("key-%d", number)) }

type fixture struct {
	*keywatch.Informer

	server *server
	shown  *recorder
}

// start runs an informer until the test ends.
func start(t *testing.T, server *server) *fixture {
	t.Helper()
	f := &fixture{
		Informer: keywatch.New(keywatch.Options{Namespace: namespace, Open: server.Open, Clock: clock.RealClock{}}),
		server:   server, shown: newRecorder(),
	}
	if _, err := f.AddEventHandler(f.shown); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		f.Run(ctx)
		close(ended)
	}()
	synctest.Wait()
	t.Cleanup(func() {
		cancel()
		<-ended
		if open := server.open(); len(open) > 0 {
			t.Errorf("%v are watched after the end", open)
		}
		for _, wrong := range f.shown.wrong {
			t.Error(wrong)
		}
	})
	return f
}

// use uses a lock until the test ends or release is called.
func (f *fixture) use(name types.NamespacedName) (release func()) {
	release = f.Use(name, nil, false)
	synctest.Wait()
	return release
}

func (f *fixture) mustTell(t *testing.T, name types.NamespacedName, want string) {
	t.Helper()
	synctest.Wait()
	if got := f.shown.last(name); got != want {
		t.Errorf("told last of %s: %q, want %q", name.Name, got, want)
	}
}

func (f *fixture) mustRequest(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, f.server.made()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func (f *fixture) mustHaveOpen(t *testing.T, want int) {
	t.Helper()
	synctest.Wait()
	if open := f.server.open(); len(open) != want {
		t.Errorf("%d watches are open, want %d", len(open), want)
	}
}

func TestOnlyTheLockInUseIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newServer())
		mine, other := named("mine"), named("other")
		f.server.write(other, watch.Added)
		f.mustRequest(t)
		f.use(mine)
		f.mustTell(t, mine, "absent")
		f.server.write(mine, watch.Added)
		f.mustTell(t, mine, "added")
		f.server.write(other, watch.Modified)
		f.server.write(mine, watch.Modified)
		f.mustTell(t, mine, "changed")
		f.server.write(mine, watch.Deleted)
		f.mustTell(t, mine, "deleted")
		f.mustTell(t, other, "")
		f.mustRequest(t, "watch mine")
	})
}

func TestALockOfAnotherNamespaceIsNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newServer())
		f.Use(types.NamespacedName{Namespace: "elsewhere", Name: "mine"}, nil, false)()
		f.mustRequest(t)
	})
}

func TestABriefUseOpensNoWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newServer())
		for range 100 {
			release := f.Use(named("mine"), nil, true)
			pass(keywatch.BriefFor / 2)
			release()
		}
		pass(keywatch.BriefFor)
		f.mustRequest(t)

		release := f.Use(named("mine"), nil, true)
		defer release()
		pass(keywatch.BriefFor)
		f.mustRequest(t, "watch mine")
	})
}

func TestAWatchIsKeptForAMinuteAfterItsLastUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newServer())
		mine := named("mine")
		f.server.write(mine, watch.Added)
		for range 10 {
			f.use(mine)()
			pass(keywatch.KeepFor - time.Millisecond)
		}
		f.mustRequest(t, "watch mine")
		f.mustTell(t, mine, "added")
		pass(time.Millisecond)
		f.mustHaveOpen(t, 0)
		f.mustTell(t, mine, "forgotten")
		f.use(mine)
		f.mustRequest(t, "watch mine")
		f.mustTell(t, mine, "added")
	})
}

func TestAUseLearnsOfWhatHappenedBeforeTheWatch(t *testing.T) {
	cases := map[string]struct {
		happens func(*server) (known *v1alpha1.Lock)
		// isWatched says that the lock is used already.
		isWatched bool
		want      string
	}{
		"the lock is gone": {
			happens: func(s *server) *v1alpha1.Lock {
				known := s.write(named("mine"), watch.Added)
				s.write(named("mine"), watch.Deleted)
				return known
			},
			want: "deleted",
		},
		"the lock is gone, and watched": {
			happens: func(s *server) *v1alpha1.Lock {
				known := s.write(named("mine"), watch.Added)
				s.write(named("mine"), watch.Deleted)
				return known
			},
			isWatched: true, want: "deleted",
		},
		"the lock is as known": {
			happens: func(s *server) *v1alpha1.Lock { return s.write(named("mine"), watch.Added) },
			want:    "added",
		},
		"there was none": {happens: func(*server) *v1alpha1.Lock { return nil }, want: "absent"},
	}
	for title, test := range cases {
		for _, isOld := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, from an old server: %v", title, isOld), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := newServer()
					server.isOld = isOld
					f := start(t, server)
					if test.isWatched {
						f.use(named("mine"))
					}
					f.Use(named("mine"), test.happens(server), false)
					synctest.Wait()
					if test.isWatched && f.shown.wasTold(named("mine")) && f.shown.last(named("mine")) == "absent" {
						return // The watch has told of the end before the use.
					}
					f.mustTell(t, named("mine"), test.want)
				})
			})
		}
	}
}

// A list may be older than what the user has seen: that the lock is not in it tells nothing.
func TestAListThatIsBehindTheUseTellsNothing(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			server := newServer()
			server.isOld, server.maxLag = true, 1
			f := start(t, server)
			f.Use(named("mine"), server.write(named("mine"), watch.Added), false)
			f.mustTell(t, named("mine"), "added")
		})
	}
}

func TestAListHoldsAfterEtcdWasRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newServer())
		f.use(named("mine"))
		f.server.write(named("mine"), watch.Added)
		f.server.write(named("mine"), watch.Modified)
		f.mustTell(t, named("mine"), "changed")
		f.server.restore()
		pass(10 * time.Second)
		f.mustTell(t, named("mine"), "deleted")
	})
}

func TestALockMayBeUsedBeforeTheInformerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		informer := keywatch.New(keywatch.Options{Namespace: namespace, Open: server.Open, Clock: clock.RealClock{}})
		shown := newRecorder()
		if _, err := informer.AddEventHandler(shown); err != nil {
			t.Fatal(err)
		}
		informer.Use(named("mine"), nil, false)
		go informer.Run(t.Context())
		synctest.Wait()
		if got := shown.last(named("mine")); got != "absent" {
			t.Errorf("told %q", got)
		}
	})
}

func TestAnIdleWatchMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newServer())
		for number := range keywatch.MaxNames {
			release := f.use(numbered(number))
			if number < 2 {
				release()
				pass(time.Second)
			}
		}
		f.use(named("another"))
		f.mustHaveOpen(t, keywatch.MaxNames)
		f.mustTell(t, numbered(0), "forgotten")
		f.mustTell(t, numbered(1), "absent")
	})
}

func TestALockBeyondTheBoundIsWatchedWhenThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newServer())
		var releases []func()
		for number := range keywatch.MaxNames + 1 {
			releases = append(releases, f.use(numbered(number)))
		}
		f.mustHaveOpen(t, keywatch.MaxNames)
		f.mustTell(t, numbered(keywatch.MaxNames), "")
		releases[0]()
		f.mustHaveOpen(t, keywatch.MaxNames)
		f.mustTell(t, numbered(keywatch.MaxNames), "absent")
		f.mustTell(t, numbered(0), "forgotten")
	})
}

func TestAUseThatWaitsTakesThePlaceOfOneThatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newServer())
		for number := range keywatch.MaxNames {
			f.server.write(numbered(number), watch.Added)
			f.Use(numbered(number), nil, number == 0)
		}
		pass(keywatch.BriefFor)
		held, another := numbered(0), named("another")
		f.mustTell(t, held, "added")
		release := f.use(another)
		f.mustHaveOpen(t, keywatch.MaxNames)
		f.mustTell(t, another, "absent")
		f.mustTell(t, held, "forgotten")
		f.use(named("one more"))
		f.mustTell(t, named("one more"), "")
		f.mustTell(t, another, "absent") // It waits as well.

		f.server.write(held, watch.Deleted)
		f.mustTell(t, held, "forgotten")
		release()
		f.mustTell(t, named("one more"), "absent")
		f.mustTell(t, another, "forgotten")
		f.mustHaveOpen(t, keywatch.MaxNames)
	})
}

func TestAUseThatIsHeldHasItsPlaceAgainWhenThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newServer())
		held := numbered(0)
		for number := range keywatch.MaxNames {
			f.server.write(numbered(number), watch.Added)
			f.Use(numbered(number), nil, number == 0)
		}
		pass(keywatch.BriefFor)
		release := f.use(named("another"))
		f.server.write(held, watch.Deleted)
		f.mustTell(t, held, "forgotten")
		release()
		f.mustTell(t, held, "deleted")
		f.mustHaveOpen(t, keywatch.MaxNames)
	})
}

// A lock that is waited for, and whose waiter leaves while it is held, makes room for another that is waited for.
func TestALockThatNoOneWaitsForAnyMoreMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newServer())
		release := f.use(numbered(0))
		f.Use(numbered(0), nil, true)
		for number := range keywatch.MaxNames {
			f.use(numbered(number + 1))
		}
		last := numbered(keywatch.MaxNames)
		f.mustTell(t, last, "")
		release()
		f.mustTell(t, last, "absent")
		f.mustTell(t, numbered(0), "forgotten")
	})
}
