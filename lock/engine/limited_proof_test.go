package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/storage"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

func TestAConditionalRenewalAndReleaseAreOneWriteEach(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, running *engine.Engine) {
		granted := acquire(t, running, by("a"))
		fencing, err := granted.FencingToken()
		if err != nil {
			t.Fatal(err)
		}
		etcd.made()
		renewed, err := running.Renew(t.Context(), "default", key, lock.Proof{Owner: "a", FencingToken: fencing, ResourceVersion: granted.ResourceVersion}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := running.Release(t.Context(), "default", key, lock.Proof{Owner: "a", FencingToken: fencing, ResourceVersion: renewed.ResourceVersion}); err != nil {
			t.Fatal(err)
		}
		etcd.mustMake(t, "update", "delete")
	})
}

// The condition is that of the write: a change that the engine has not seen fails it.
func TestAConditionalWriteThatLosesARace(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, running *engine.Engine) {
		granted := acquire(t, running, by("a"))
		proof := lock.Proof{Owner: "a", ResourceVersion: granted.ResourceVersion}
		pass(time.Second)
		etcd.mute(true)
		etcd.touch()
		if _, err := running.Renew(t.Context(), "default", key, proof, 0); !errors.Is(err, lock.ErrStale) {
			t.Errorf("renew: %v, want ErrStale", err)
		}
		if err := running.Release(t.Context(), "default", key, proof); !errors.Is(err, lock.ErrStale) {
			t.Errorf("release: %v, want ErrStale", err)
		}
		if etcd.owner(name) != "a" {
			t.Error("the lock has ended")
		}
	})
}

// A renewal that was stamped by a wrong clock is made again, on the version that it has made itself.
func TestAConditionalRenewalByAWrongClock(t *testing.T) {
	wrongBy(t, func(t *testing.T, wrong time.Duration) {
		t.Helper()
		etcd := newEtcd()
		running, step := startSkewed(t, etcd)
		granted := acquire(t, running, by("a"))
		pass(8 * time.Second)
		step(wrong)
		renewed, err := running.Renew(t.Context(), "default", key, lock.Proof{Owner: "a", ResourceVersion: granted.ResourceVersion}, 0)
		if err != nil {
			t.Fatal(err)
		}
		wantTTL(t, "a renewal", renewed, 1500*time.Millisecond)
	})
}

// A proxy that repeats a create must not make the engine refuse its own grant.
func TestARepeatedCreateOfASecretIsRecognised(t *testing.T) {
	for owner, want := range map[string]error{rules.HashedOwner([]byte("s"), false): nil, rules.HashedOwner([]byte("s"), true): lock.ErrHeld} {
		synctest.Test(t, func(t *testing.T) {
			etcd := newEtcd()
			running := startWith(t, engine.Options{
				Objects: func(string) engine.Objects { return repeating{etcd} }, Informer: etcd, Limits: rules.DefaultLimits(),
			})
			if _, err := running.Acquire(t.Context(), "default", by(owner)); !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("%s: %v, want %v", owner, err, want)
			}
			passOrphanWindow()
		})
	}
}

// testPagesThatFail continues a list while the API server refuses that.
func testPagesThatFail(t *testing.T, etcd *etcd, running *engine.Engine, next string) {
	t.Helper()
	request := lock.PageRequest{Limit: 100, Continue: next}
	etcd.inject(faults{before: once("list", apierrors.NewResourceExpired("compacted"))})
	if _, err := running.ListPage(t.Context(), "default", request); !errors.Is(err, lock.ErrPageExpired) {
		t.Errorf("an old page: %v", err)
	}
	etcd.inject(faults{before: once("list", storage.NewTooLargeResourceVersionError(9, 1, 1))})
	if _, err := running.ListPage(t.Context(), "default", request); !errors.Is(err, lock.ErrPageExpired) {
		t.Errorf("a page that is yet to come: %v", err)
	}
	etcd.inject(faults{before: once("list", apierrors.NewTimeoutError("etcd", 1))})
	if _, err := running.ListPage(t.Context(), "default", request); !errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("an outage: %v", err)
	}
	etcd.inject(faults{before: once("list", apierrors.NewBadRequest("continue"))})
	if _, err := running.ListPage(t.Context(), "default", request); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("a wrong page: %v", err)
	}
}

func TestPagesOfALargeNamespace(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, running *engine.Engine) {
		var want []string
		for i := range 1300 {
			request := by("a")
			request.Key = fmt.Sprintf("a%04d", i)
			if i%100 == 99 {
				request.Key = fmt.Sprintf("b%04d", i)
				want = append(want, request.Key)
			}
			request.TTL = time.Hour
			if i == 50 {
				request.TTL = time.Second
			}
			acquire(t, running, request)
		}
		pass(2 * time.Second)
		etcd.made()
		var got []string
		request := lock.PageRequest{Prefix: "b", Limit: 5}
		for {
			page, err := running.ListPage(t.Context(), "default", request)
			if err != nil {
				t.Fatal(err)
			}
			for index := range page.Locks {
				got = append(got, page.Locks[index].Spec.Key)
			}
			if request.Continue = page.Continue; request.Continue == "" {
				break
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		// Two chunks find the first page; each of the two others reads the second chunk again.
		etcd.mustMake(t, "list", "list", "list", "list")
		page, err := running.ListPage(t.Context(), "default", lock.PageRequest{Limit: 100})
		if err != nil || len(page.Locks) != 100 || page.Continue == "" || len(etcd.made()) != 2 {
			t.Errorf("%d locks, %q, %v", len(page.Locks), page.Continue, err) // One lock has expired, so one more list fills the page.
		}
		testPagesThatFail(t, etcd, running, page.Continue)
	})
}

func TestStreamsEndWithTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running, stop := startStoppable(t, newEtcd())
		begun, err := running.Stream(context.WithoutCancel(t.Context()), "default", "")
		if err != nil {
			t.Fatal(err)
		}
		stop()
		if _, isOpen := <-begun.Changes; isOpen {
			t.Error("a change after the engine has stopped")
		}
		if _, err := running.Stream(t.Context(), "default", ""); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
	})
}
