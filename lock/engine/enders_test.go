package engine_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/audit/audittest"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// ender is a call that ends a's grant.
type ender func(context.Context, *engine.Engine) error

func releaseOf(proof lock.Proof) ender {
	return func(ctx context.Context, through *engine.Engine) error {
		return through.Release(ctx, "default", key, proof)
	}
}

func forceOf(preconditions ...lock.Precondition) ender {
	return func(ctx context.Context, through *engine.Engine) error {
		return through.ForceRelease(ctx, "default", key, "stuck", preconditions...)
	}
}

// Of two calls at once that may end a grant, whatever order their requests come in, one is told that it did. A forced release
// without a token may come late enough to be for the next grant.
func TestOneOfTwoEndersIsToldThatItEndedTheGrant(t *testing.T) {
	// Token 1 is that of the first grant of each etcd.
	enders := map[string]ender{
		"release":                     releaseOf(lock.Proof{Owner: "a"}),
		"release with a token":        releaseOf(lock.Proof{Owner: "a", FencingToken: 1}),
		"forced release":              forceOf(),
		"forced release with a token": forceOf(lock.Precondition{FencingToken: 1}),
	}
	for first, one := range enders {
		for second, other := range enders {
			for where, isElsewhere := range map[string]bool{"at one engine": false, "at two engines": true} {
				for who, hasWaiter := range map[string]bool{"alone": false, "with a waiter": true} {
					t.Run(first+" and "+second+" "+where+" "+who, func(t *testing.T) {
						for late := time.Duration(0); late <= 5*time.Millisecond; late += 100 * time.Microsecond {
							synctest.Test(t, func(t *testing.T) { twoEnders(t, one, other, isElsewhere, hasWaiter, late) })
						}
					})
				}
			}
		}
	}
}

// twoEnders has the other call begin later than the one.
func twoEnders(t *testing.T, one, other ender, isElsewhere, hasWaiter bool, late time.Duration) {
	t.Helper()
	etcd := newEtcd()
	here := start(t, etcd)
	there := here
	if isElsewhere {
		there = start(t, etcd)
	}
	acquire(t, here, by("a"))
	answers := make(chan answer, 1)
	if hasWaiter {
		queueUp(t.Context(), t, here, waiting("b", time.Hour), answers)
	}
	// A millisecond on the way there, and one on the way back.
	onTheWay := func(string) error { pass(time.Millisecond); return nil }
	etcd.inject(faults{before: onTheWay, after: onTheWay})
	told := make(chan error, 2)
	go func() { told <- one(t.Context(), here) }()
	go func() {
		pass(late)
		told <- other(t.Context(), there)
	}()
	ended := 0
	for range 2 {
		switch err := <-told; {
		case err == nil:
			ended++
		case !errors.Is(err, lock.ErrNotHeld) && !errors.Is(err, lock.ErrOwnerMismatch) && !errors.Is(err, lock.ErrOtherGrant):
			t.Errorf("%s later: %v", late, err)
		}
	}
	etcd.inject(faults{})
	grants := 1
	if hasWaiter {
		if got := <-answers; got.err != nil {
			t.Fatalf("%s later: the waiter was told %v", late, got.err)
		}
		grants = 2
	}
	synctest.Wait()
	left := etcd.owner(name)
	if left != "" {
		grants--
	}
	if ended != grants {
		t.Errorf("%s later: %d calls were told that they ended a grant; %d were, and %q holds the lock", late, ended, grants, left)
	}
}

// A forced release is for the grant that it found. What it meets may be the next one, in the same object.
func TestAForcedReleaseThatMeetsAHandOffLeavesTheNextHolderAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		first, second := start(t, etcd), start(t, etcd)
		acquire(t, first, by("a"))
		answers := queued(t, first, waiting("b", time.Hour))
		var once sync.Once
		etcd.inject(faults{before: func(verb string) error {
			if verb == "delete" {
				once.Do(func() {
					release(t, first, "a") // hands off to b, under the same UID
					if got := <-answers; got.err != nil || got.owner != "b" {
						t.Errorf("got %v", got)
					}
				})
			}
			return nil
		}})
		err := second.ForceRelease(t.Context(), "default", key, "a is stuck")
		if !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("got %v, want ErrNotHeld", err)
		}
		if owner := etcd.owner(name); owner != "b" {
			t.Errorf("%q holds the lock, want b", owner)
		}
	})
}

// Of two forced releases at once, the audit records the reason of the one that was told that it ended the grant.
func TestTheReasonOfTheForcedReleaseThatEndedTheGrantIsRecorded(t *testing.T) {
	for title, isAdmitted := range map[string]bool{"by admission": true, "by the engine": false} {
		t.Run(title, func(t *testing.T) {
			for late := time.Duration(0); late <= 12*time.Millisecond; late += 100 * time.Microsecond {
				synctest.Test(t, func(t *testing.T) { twoReasons(t, isAdmitted, late) })
			}
		})
	}
}

// distant makes requests take a while on the way there, and on the way back, and deletes some more.
type distant struct {
	engine.Objects
	away, more time.Duration
}

func (d distant) Get(ctx context.Context, name string, options metav1.GetOptions) (*v1alpha1.Lock, error) {
	pass(d.away)
	defer pass(d.away)
	return d.Objects.Get(ctx, name, options)
}

func (d distant) Update(ctx context.Context, object *v1alpha1.Lock, options metav1.UpdateOptions) (*v1alpha1.Lock, error) {
	pass(d.away)
	defer pass(d.away)
	return d.Objects.Update(ctx, object, options)
}

func (d distant) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	pass(d.away + d.more)
	defer pass(d.away)
	return d.Objects.Delete(ctx, name, options)
}

// twoReasons has the second forced release begin later than the first.
func twoReasons(t *testing.T, isAdmitted bool, late time.Duration) {
	t.Helper()
	behind, records := newAdmitting(), &audittest.Recorder{}
	replica := func(away, more time.Duration) *engine.Engine {
		objects := distant{behind.etcd, away, more}
		if isAdmitted {
			objects.Objects = behind
		}
		return startWith(t, engine.Options{
			Objects: func(string) engine.Objects { return objects }, Informer: behind, Limits: rules.DefaultLimits(), IsAdmitted: isAdmitted,
			ClockSkewAllowance: time.Second, Audit: records,
		})
	}
	first, second := replica(2*time.Millisecond, 0), replica(200*time.Microsecond, 20*time.Millisecond)
	acquire(t, first, by("a"))
	behind.user = "breaker"
	errs := make([]error, 2)
	var both sync.WaitGroup
	both.Go(func() { errs[0] = first.ForceRelease(t.Context(), "default", key, "the first reason") })
	both.Go(func() {
		pass(late)
		errs[1] = second.ForceRelease(t.Context(), "default", key, "the second reason")
	})
	both.Wait()
	var told []string
	for index, reason := range []string{"the first reason", "the second reason"} {
		switch err := errs[index]; {
		case err == nil:
			told = append(told, reason)
		case !errors.Is(err, lock.ErrNotHeld):
			t.Errorf("%s later: %v", late, err)
		}
	}
	recorded := behind.reasons
	if !isAdmitted {
		recorded = nil
		for _, record := range records.All() {
			if record.Event == audit.ForceReleased && !record.Unconfirmed {
				recorded = append(recorded, record.Message)
			}
		}
	}
	if len(told) != 1 || !slices.Equal(recorded, told) {
		t.Errorf("%s later: %q were told that they ended the grant, recorded are %q", late, told, recorded)
	}
}
