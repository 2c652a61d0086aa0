package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
)

func TestAcquireWhoseAnswerIsLost(t *testing.T) {
	timeout := apierrors.NewTimeoutError("etcd did not answer in time", 0)
	internal := apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
	cases := map[string]faults{
		"after the create happened":            {after: once("create", errLostAnswer)},
		"before the create happened":           {before: once("create", errLostAnswer)},
		"with a timeout of the API server":     {after: once("create", timeout)},
		"with an internal error of the server": {after: once("create", internal)},
		"and the read-back fails, too":         {after: once("create", errLostAnswer), before: once("get", errLostAnswer)},
		"and the read-back finds no server":    {after: once("create", errLostAnswer), before: once("get", errRefused)},
	}
	for name, test := range cases {
		bubbleOf(t, name, func(t *testing.T) {
			etcd := newEtcd()
			etcd.inject(test)
			engine := start(t, etcd)
			acquired, err := engine.Acquire(t.Context(), "default", by("a"))
			if err != nil {
				t.Fatal(err)
			}
			if acquired.UID == "" || etcd.owner(acquired.Name) != "a" {
				t.Errorf("acquired %v, but %q holds it", acquired, etcd.owner(acquired.Name))
			}
			if err := engine.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestUnreachableServerIsReportedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		etcd.inject(faults{before: always(errRefused)})
		engine := start(t, etcd)
		begin := time.Now()
		_, acquire := engine.Acquire(t.Context(), "default", by("a"))
		release := engine.Release(t.Context(), "default", key, lock.Proof{Owner: "a"})
		_, get := engine.Get(t.Context(), "default", key)
		for _, err := range []error{acquire, release, get} {
			if !errors.Is(err, lock.ErrUnavailable) {
				t.Errorf("got %v, want ErrUnavailable", err)
			}
		}
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("waited %s for a server that is not there", waited)
		}
	})
}

func TestReleaseIsFinishedOnceTheServerIsBack(t *testing.T) {
	lostDelete := func(verb string) error {
		if verb == "delete" {
			return errLostAnswer
		}
		return errRefused
	}
	for name, outage := range map[string]func(string) error{"nothing was sent": always(errRefused), "the delete was lost": lostDelete} {
		bubbles(t, name, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
			acquire(t, engine, by("a"))
			etcd.inject(faults{before: outage})
			if err := engine.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}); !errors.Is(err, lock.ErrUnavailable) {
				t.Errorf("got %v, want ErrUnavailable", err)
			}
			etcd.inject(faults{})
			pass(10 * time.Second)
			synctest.Wait()
			etcd.mustBeFree(t)
		})
	}
}

// The deadline of its caller ends neither the release of a lock that the engine has not granted nor its record.
func TestReleaseGoesOnAfterTheDeadlineOfItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		acquire(t, start(t, etcd), by("a"))
		other := start(t, etcd)
		etcd.inject(faults{before: func(string) error {
			<-time.After(100 * time.Millisecond)
			return nil
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		if err := other.Release(ctx, "default", key, lock.Proof{Owner: "a"}); !errors.Is(err, lock.ErrUnavailable) || time.Since(began) > 50*time.Millisecond {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		<-time.After(time.Second)
		etcd.mustBeFree(t)
	})
}

// Two callers with the same owner token acquire at the same moment, and both answers are lost.
func TestCallersOfOneOwnerDoNotShareAGrant(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		etcd.inject(faults{after: failing("create", errLostAnswer), before: once("create", errLostAnswer)})
		results := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := engine.Acquire(t.Context(), "default", by("shared"))
				results <- err
			}()
		}
		first, second := <-results, <-results
		if (first == nil) == (second == nil) {
			t.Errorf("got %v and %v, want exactly one grant", first, second)
		}
	})
}

// A full etcd answers reads, and refuses writes with an internal error.
func TestWritesThatAreNeverAnsweredDoNotSayThatTheLockIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, engine *engine.Engine) {
		mustAcquire(t, engine, "a", time.Second)
		pass(time.Minute)
		etcd.inject(faults{before: failing("update", apierrors.NewInternalError(errors.New("etcdserver: mvcc: database space exceeded")))})
		for range 50 { // The pauses between the tries are random.
			if _, err := engine.Acquire(t.Context(), "default", by("b")); !errors.Is(err, lock.ErrUnavailable) {
				t.Fatalf("got %v, want ErrUnavailable", err)
			}
		}
	})
}

// A caller that repeats a release takes a lock that is gone by then for released by the first one, unless that has done nothing.
func TestAReleaseSaysThatItHasDoneNothing(t *testing.T) {
	for name, test := range map[string]struct {
		fault error
		// isKnown says that the engine has made the grant, and goes on with its release.
		isKnown bool
		want    bool
	}{
		"nothing was sent":                    {fault: errRefused, want: true},
		"the API server has refused it":       {fault: apierrors.NewTooManyRequests("slow down", 1), want: true},
		"the delete may have happened":        {fault: errLostAnswer},
		"nothing was sent, and it is yet":     {fault: errRefused, isKnown: true},
		"the delete of a known grant is lost": {fault: errLostAnswer, isKnown: true},
	} {
		bubbleOf(t, name, func(t *testing.T) {
			etcd := newEtcd()
			here, there := start(t, etcd), start(t, etcd)
			acquire(t, here, by("a"))
			releasing := there
			if test.isKnown {
				releasing = here
			}
			etcd.inject(faults{before: failing("delete", test.fault)})
			err := releasing.Release(t.Context(), "default", key, lock.Proof{Owner: "a"})
			if !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrNothingDone) != test.want {
				t.Errorf("got %v", err)
			}
			etcd.inject(faults{})
		})
	}
}
