package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

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
		bubbleOf(t, title, func(t *testing.T) {
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
		etcd.mustBeFree(t)
	})
}

// A release may have to wait for the home of a line, or come late to it. Its caller may have left and renewed the lock by
// then, through any engine.
func TestALateReleaseSparesALockThatWasRenewedSinceItWasAskedFor(t *testing.T) {
	for what, test := range map[string]struct{ isRenewedHere, isCallerKnown, isAskedLater bool }{
		"through another engine":                       {isCallerKnown: true},
		"through the same engine":                      {isCallerKnown: true, isRenewedHere: true},
		"through another engine, without a caller":     {},
		"through the same engine, without a caller":    {isRenewedHere: true},
		"but not before that, through another engine":  {isAskedLater: true},
		"but not before that, through the same engine": {isAskedLater: true, isRenewedHere: true},
	} {
		bubbleOf(t, what, func(t *testing.T) {
			etcd := newEtcd()
			here, there := start(t, etcd), start(t, etcd)
			acquire(t, here, by("a"))
			caller, leave := context.WithCancel(t.Context())
			defer leave()
			asked := engine.ContextWithoutCaller(t.Context(), time.Now())
			if test.isCallerKnown {
				asked = engine.ContextWithCaller(t.Context(), caller, time.Now())
			}
			pass(time.Second)
			leave()
			renewing := there
			if test.isRenewedHere {
				renewing = here
			}
			if _, err := renewing.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 10*time.Minute); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
			holder, want := "a", lock.ErrUnavailable
			if test.isAskedLater {
				asked, holder, want = engine.ContextWithoutCaller(t.Context(), time.Now()), "", nil
			}
			etcd.inject(faults{before: once("delete", errLostAnswer)})
			if err := here.Release(asked, "default", key, lock.Proof{Owner: "a"}); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			passOrphanWindow()
			if owner := etcd.owner(name); owner != holder {
				t.Errorf("the lock is held by %q", owner)
			}
		})
	}
}

// A renewal may be under way when its lock is released. It is no sign that the caller goes on, even if that leaves later.
func TestAReleaseAfterARenewalOfItsCallerIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		here, there := start(t, etcd), start(t, etcd)
		acquire(t, there, by("a"))
		pass(time.Second)
		etcd.mute(true)
		caller, leave := context.WithCancel(t.Context())
		deletes := 0
		etcd.inject(faults{before: func(verb string) error {
			if verb != "delete" {
				return nil
			}
			deletes++
			switch deletes {
			case 1:
				if _, err := there.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, time.Hour); err != nil {
					t.Error(err)
				}
			case 2:
				leave()
				return errLostAnswer
			}
			return nil
		}})
		if err := here.Release(caller, "default", key, lock.Proof{Owner: "a"}); err != nil || deletes != 3 {
			t.Errorf("%d deletes, %v", deletes, err)
		}
	})
}

// A release is carried out whether or not its caller waits for it. A lock may be stamped later than the clock of the
// engine that releases it.
func TestAReleaseOfACallerThatHasLeftIsMade(t *testing.T) {
	for what, isRenewed := range map[string]bool{"before, after a renewal": true, "while the lock is read": false} {
		bubbleOf(t, what, func(t *testing.T) {
			etcd, behind := newEtcd(), &steppedClock{}
			behind.offset.Store(int64(-400 * time.Millisecond))
			here := startWith(t, engine.Options{Objects: etcd.locks, Informer: etcd, Limits: rules.DefaultLimits(), Clock: behind})
			there := start(t, etcd)
			acquire(t, there, by("a"))
			caller, leave := context.WithCancel(t.Context())
			defer leave()
			if isRenewed {
				pass(time.Millisecond)
				if _, err := there.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, time.Hour); err != nil {
					t.Fatal(err)
				}
				leave()
			}
			etcd.inject(faults{before: func(string) error {
				leave()
				return nil
			}})
			if err := here.Release(caller, "default", key, lock.Proof{Owner: "a"}); err != nil {
				t.Error(err)
			}
			etcd.mustBeFree(t)
		})
	}
}

// cutOff is an API server that a replica cannot reach until restored is closed.
type cutOff struct {
	engine.Objects
	isCut    *atomic.Bool
	restored chan struct{}
	// hangs makes requests wait for that in place of failing.
	hangs bool
}

func (c cutOff) pass(ctx context.Context) error {
	switch {
	case !c.isCut.Load():
		return nil
	case !c.hangs:
		return errLostAnswer
	}
	select {
	case <-c.restored:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c cutOff) Get(ctx context.Context, name string, options metav1.GetOptions) (*v1alpha1.Lock, error) {
	if err := c.pass(ctx); err != nil {
		return nil, err
	}
	return c.Objects.Get(ctx, name, options)
}

func (c cutOff) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	if err := c.pass(ctx); err != nil {
		return err
	}
	return c.Objects.Delete(ctx, name, options)
}

// A caller that was told that its release is not known to have happened may go on with the lock, through another replica.
// The replica that goes on with the release sees that renewal.
func TestAReleaseBeforeARenewalElsewhereIsGivenUp(t *testing.T) {
	for what, test := range map[string]struct {
		isCutFor       time.Duration
		hangs, isKnown bool
		ahead          time.Duration
	}{
		"while it goes on":            {isCutFor: 3 * time.Second, isKnown: true},
		"after it":                    {isCutFor: 12 * time.Second, isKnown: true},
		"of another replica's grant":  {isCutFor: 3 * time.Second, hangs: true},
		"whose first request is late": {isCutFor: 3 * time.Second, hangs: true, isKnown: true},
		"with a clock that is ahead":  {isCutFor: 3 * time.Second, hangs: true, isKnown: true, ahead: 10 * time.Second},
	} {
		bubbleOf(t, what, func(t *testing.T) {
			etcd := newEtcd()
			cut := cutOff{Objects: etcd, isCut: new(atomic.Bool), restored: make(chan struct{}), hangs: test.hangs}
			local := &steppedClock{}
			local.offset.Store(int64(test.ahead))
			here := startWith(t, engine.Options{
				Objects: func(string) engine.Objects { return cut }, Informer: etcd, Limits: rules.DefaultLimits(), Clock: local,
			})
			there := start(t, etcd)
			if test.isKnown {
				acquire(t, here, by("a"))
			} else {
				acquire(t, there, by("a"))
			}
			pass(time.Second)
			cut.isCut.Store(true)
			caller, leave := context.WithTimeout(t.Context(), time.Second)
			defer leave()
			if err := here.Release(caller, "default", key, lock.Proof{Owner: "a"}); !errors.Is(err, lock.ErrUnavailable) {
				t.Errorf("got %v, want ErrUnavailable", err)
			}
			pass(time.Second)
			if _, err := there.Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 10*time.Minute); err != nil {
				t.Fatal(err)
			}
			pass(test.isCutFor - 2*time.Second)
			cut.isCut.Store(false)
			close(cut.restored)
			pass(time.Minute)
			if owner := etcd.owner(name); owner != "a" {
				t.Errorf("the lock is held by %q", owner)
			}
		})
	}
}
