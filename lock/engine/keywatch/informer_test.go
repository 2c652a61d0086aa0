package keywatch_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
		if single, wide := server.open(); single+wide > 0 {
			t.Errorf("%d watches of single locks and %d of all are open after the end", single, wide)
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

func (f *fixture) mustHaveOpen(t *testing.T, single, wide int) {
	t.Helper()
	synctest.Wait()
	if gotSingle, gotWide := f.server.open(); gotSingle != single || gotWide != wide {
		t.Errorf("open: %d watches of single locks and %d of all, want %d and %d", gotSingle, gotWide, single, wide)
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
		f.mustHaveOpen(t, 0, 0)
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

func TestManyLocksInUseAreWatchedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newServer())
		unused := named("unused")
		f.server.write(unused, watch.Added)
		var releases []func()
		for number := range keywatch.MaxNames {
			f.server.write(numbered(number), watch.Added)
			releases = append(releases, f.use(numbered(number)))
		}
		f.mustHaveOpen(t, keywatch.MaxNames, 0)
		f.mustTell(t, unused, "")
		f.server.made()

		releases = append(releases, f.use(numbered(keywatch.MaxNames)))
		f.mustHaveOpen(t, 0, 1)
		f.mustTell(t, numbered(keywatch.MaxNames), "absent")
		f.mustTell(t, unused, "added")
		for number := range 1000 {
			f.use(numbered(keywatch.MaxNames + number))()
		}
		f.mustRequest(t, "watch ")

		for _, release := range releases[keywatch.MaxNames/2:] {
			release()
		}
		pass(5*time.Minute - time.Second)
		f.mustHaveOpen(t, 0, 1)
		pass(time.Second)
		f.mustHaveOpen(t, keywatch.MaxNames/2, 0)
		f.mustTell(t, unused, "forgotten")
		f.server.write(numbered(0), watch.Deleted)
		f.mustTell(t, numbered(0), "deleted")
	})
}

// A watch is closed when the one that replaces it has shown as much, which a bookmark may tell.
func TestAWatchIsNotClosedBeforeTheOneThatReplacesItHasCaughtUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		server.isOld = true
		f := start(t, server)
		var releases []func()
		server.write(named("unused"), watch.Added)
		for number := range keywatch.MaxNames {
			releases = append(releases, f.use(numbered(number)))
		}
		server.set(1, nil)
		releases = append(releases, f.use(numbered(keywatch.MaxNames)))
		f.mustHaveOpen(t, keywatch.MaxNames, 1)
		server.sendBookmarks()
		f.mustHaveOpen(t, 0, 1)

		for _, release := range releases[1:] {
			release()
		}
		server.set(0, apierrors.NewInternalError(errors.New("test")))
		pass(5 * time.Minute)
		f.mustHaveOpen(t, 0, 1)
		server.write(numbered(0), watch.Added)
		f.mustTell(t, numbered(0), "added")
		server.set(0, nil)
		pass(5 * time.Minute)
		f.mustHaveOpen(t, 1, 0)
	})
}

// startNarrowing returns an informer that is to watch the locks 0 and 1 one by one again, but still
// has the watch of all, since that of lock 0 cannot be opened. ReleaseOther ends the use of lock 1.
func startNarrowing(t *testing.T) (f *fixture, releaseOther func()) {
	t.Helper()
	server := newServer()
	f = start(t, server)
	var releases []func()
	for number := range keywatch.MaxNames + 1 {
		server.write(numbered(number), watch.Added)
		releases = append(releases, f.use(numbered(number)))
	}
	for _, release := range releases[2:] {
		release()
	}
	server.mu.Lock()
	server.refuse = func(name types.NamespacedName) error {
		if name == numbered(0) {
			return apierrors.NewInternalError(errors.New("test"))
		}
		return nil
	}
	server.mu.Unlock()
	pass(5 * time.Minute)
	f.mustHaveOpen(t, 1, 1)
	return f, releases[1]
}

func TestAUseThatBeginsBeforeTheWatchOfAllIsClosedGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := startNarrowing(t)
		pass(keywatch.BriefFor / 2)
		f.Use(numbered(2), nil, true)
		f.mustTell(t, numbered(2), "added")
		f.server.set(0, nil)
		pass(keywatch.BriefFor * 3 / 4)
		f.mustHaveOpen(t, 2, 0)
		f.mustTell(t, numbered(2), "forgotten")
		pass(keywatch.BriefFor / 4)
		f.mustHaveOpen(t, 3, 0)
		f.mustTell(t, numbered(2), "added")
		f.server.write(numbered(2), watch.Deleted)
		f.mustTell(t, numbered(2), "deleted")
	})
}

// A lock without events of its own is shown by its own watch from a bookmark on, so that the watch of
// all can be closed.
func TestABookmarkHandsAUseOverToItsOwnWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := startNarrowing(t)
		f.server.write(named("unused"), watch.Added)
		synctest.Wait() // The watch of all has shown it, which a list that is late does not have.
		f.server.mu.Lock()
		f.server.isOld, f.server.lag = true, 1
		f.server.mu.Unlock()
		f.use(named("idle"))
		f.mustHaveOpen(t, 2, 1)
		f.server.sendBookmarks()
		f.server.set(0, nil)
		pass(time.Minute)
		f.mustHaveOpen(t, 3, 0)
	})
}

func TestALockWhoseWatchEndsIsShownByThatOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, releaseOther := startNarrowing(t)
		releaseOther()
		pass(keywatch.KeepFor)
		f.mustHaveOpen(t, 0, 1)
		f.mustTell(t, numbered(1), "added")
	})
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

		f.server.write(named("unused"), watch.Added)
		for number := range keywatch.MaxNames {
			f.use(numbered(number))
		}
		f.mustTell(t, named("unused"), "added")
		f.server.restore()
		pass(10 * time.Second)
		f.mustTell(t, named("unused"), "deleted")
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
		f.mustHaveOpen(t, keywatch.MaxNames, 0)
		f.mustTell(t, numbered(0), "forgotten")
		f.mustTell(t, numbered(1), "absent")
	})
}

func TestLocksStayWatchedIfTheWatchOfAllIsForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		server.refuse = func(name types.NamespacedName) error {
			if name.Name == "" {
				return apierrors.NewForbidden(v1alpha1.Resource("locks"), "", nil)
			}
			return nil
		}
		f := start(t, server)
		var releases []func()
		for number := range keywatch.MaxNames + 1 {
			releases = append(releases, f.use(numbered(number)))
		}
		f.mustHaveOpen(t, keywatch.MaxNames, 0)
		f.server.write(numbered(0), watch.Added)
		f.mustTell(t, numbered(0), "added")
		for _, release := range releases[:keywatch.MaxNames/2+1] {
			release()
		}
		pass(5 * time.Minute)
		f.mustHaveOpen(t, keywatch.MaxNames/2, 0)
		f.server.write(numbered(keywatch.MaxNames), watch.Added)
		f.mustTell(t, numbered(keywatch.MaxNames), "added")
	})
}
