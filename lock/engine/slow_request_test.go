package engine_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
)

// slowOnce makes the first request of a verb take four seconds, before it is carried out or after that.
func slowOnce(verb string, isAfter bool) faults {
	var requests atomic.Int32
	delay := func(got string) error {
		if got == verb && requests.Add(1) == 1 {
			pass(4 * time.Second)
		}
		return nil
	}
	if isAfter {
		return faults{after: delay}
	}
	return faults{before: delay}
}

// wantQuick fails if what was done has waited for a slow request of another caller.
func wantQuick(t *testing.T, began time.Time, what string) {
	t.Helper()
	if took := time.Since(began); took > 100*time.Millisecond {
		t.Errorf("%s took %v", what, took)
	}
}

// The watch shows the end of a lock before the release has its answer.
func TestAWaiterDoesNotWaitForTheAnswerToADelete(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, running *engine.Engine) {
		acquire(t, running, by("a"))
		etcd.inject(slowOnce("delete", true))
		released := make(chan error, 1)
		go func() { released <- running.Release(t.Context(), "default", key, lock.Proof{Owner: "a"}) }()
		synctest.Wait()
		began := time.Now()
		acquire(t, running, waiting("b", time.Second))
		wantQuick(t, began, "the grant")
		if err := <-released; err != nil {
			t.Error(err)
		}
	})
}

// A call that does not wait may be quicker than the try for a waiter.
func TestAReleaseDoesNotWaitForTheTryOfAWaiter(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, running *engine.Engine) {
		etcd.inject(slowOnce("create", false))
		answers := queued(t, running, waiting("b", 10*time.Second))
		acquire(t, running, by("a"))
		began := time.Now()
		release(t, running, "a")
		wantQuick(t, began, "the release")
		<-answers
	})
}

// A caller may release the lock while its grant is still being delivered.
func TestAGrantThatIsReleasedAtOnceIsHandedOff(t *testing.T) {
	bubble(t, func(t *testing.T, etcd *etcd, running *engine.Engine) {
		acquire(t, running, by("a"))
		released := make(chan error, 1)
		synctest.Wait()
		_, err := running.Enlist(t.Context(), "default", waiting("b", time.Hour), func(*v1alpha1.Lock, error) bool {
			go func() { released <- running.Release(t.Context(), "default", key, lock.Proof{Owner: "b"}) }()
			pass(time.Millisecond)
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		answers := queued(t, running, waiting("c", time.Hour))
		release(t, running, "a")
		if err := <-released; err != nil {
			t.Error(err)
		}
		got, made := <-answers, etcd.made()
		if got.err != nil || slices.Contains(made, "delete") {
			t.Errorf("%v, by the requests %q", got.err, made)
		}
	})
}
