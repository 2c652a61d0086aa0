package engine_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
)

// byProxy is what a proxy answers by itself.
func byProxy(code int, verb string) error {
	return apierrors.NewGenericServerResponse(code, verb, schema.GroupResource{}, "", http.StatusText(code), 0, true)
}

// A proxy may give up a request that it has passed on. So a grant may stand behind the answer.
func TestAProxyThatTimesOutLeavesNoGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		here := start(t, etcd)
		etcd.inject(faults{after: once("create", byProxy(http.StatusRequestTimeout, "POST"))})
		granted, err := here.Acquire(t.Context(), "default", by("a"))
		if err != nil {
			t.Fatal(err)
		}
		answers := make(chan answer, 1)
		queueUp(t.Context(), t, here, waiting("b", time.Hour), answers)
		etcd.inject(faults{after: once("update", byProxy(http.StatusRequestTimeout, "PUT"))})
		if err := here.Release(t.Context(), "default", key, lock.Proof{Owner: granted.Spec.Owner}); err != nil {
			t.Error(err)
		}
		if got := <-answers; got.err != nil || got.owner != "b" {
			t.Errorf("the waiter %q was told %v", got.owner, got.err)
		}
		release(t, here, "b")
	})
}

// That a proxy answers Conflict does not mean that the lock is held.
func TestTheConflictOfAProxyIsNoHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		here := start(t, etcd)
		etcd.inject(faults{before: func(verb string) error {
			if verb == "create" {
				return byProxy(http.StatusConflict, "POST")
			}
			return nil
		}})
		if _, err := here.Acquire(t.Context(), "default", by("a")); !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrHeld) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		passOrphanWindow()
	})
}

// A delete that went through may come back as a conflict: with itself, if a proxy has repeated it. By then the lock may be
// held under the same owner token again, by another caller.
func TestAReleaseInConflictEndsNoLaterGrant(t *testing.T) {
	for title, call := range map[string]func(context.Context, *engine.Engine) error{
		"a release": func(ctx context.Context, here *engine.Engine) error {
			return here.Release(ctx, "default", key, lock.Proof{Owner: "a"})
		},
		"a renewal": func(ctx context.Context, here *engine.Engine) error {
			_, err := here.Renew(ctx, "default", key, lock.Proof{Owner: "a"}, time.Hour)
			return err
		},
	} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				etcd := newEtcd()
				here, there := start(t, etcd), start(t, etcd)
				acquire(t, here, by("a"))
				pass(time.Second)
				etcd.mute(true)
				etcd.remove()
				later := acquire(t, there, by("a"))
				if err := call(t.Context(), here); !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrNotHeld) {
					t.Errorf("got %v, want ErrUnavailable", err)
				}
				got, err := there.Get(t.Context(), "default", key)
				if err != nil || got.ResourceVersion != later.ResourceVersion {
					t.Errorf("the later grant has changed: %v", err)
				}
				if err := call(t.Context(), here); err != nil {
					t.Errorf("again: %v", err)
				}
			})
		})
	}
}

// A lock may be renewed through another replica. What was released then, and could not be told of, ends all the same.
func TestAReleaseAfterARenewalElsewhereIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		here, there := start(t, etcd), start(t, etcd)
		acquire(t, here, by("a"))
		pass(time.Second)
		if _, err := there.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 10*time.Minute); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		etcd.inject(faults{before: func(string) error { return errLostAnswer }})
		if err := here.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}); !errors.Is(err, lock.ErrUnavailable) {
			t.Fatalf("got %v, want ErrUnavailable", err)
		}
		etcd.inject(faults{})
		pass(30 * time.Second)
		if owner := etcd.owner(name); owner != "" {
			t.Errorf("the lock is held by %q", owner)
		}
	})
}
