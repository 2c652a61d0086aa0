package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// repeatedOwner is the owner token of a request that is sent several times.
var repeatedOwner = rules.HashedOwner([]byte("the secret of a request that is repeated"), true)

// wantOneGrant returns the token of the grant that one of so many calls has got. The others must know of it a second later.
func wantOneGrant(t *testing.T, answers <-chan answer, calls int) (token int64) {
	t.Helper()
	pass(time.Second)
	if len(answers) != calls {
		t.Fatalf("%d of %d calls are answered", len(answers), calls)
	}
	grants := 0
	for range calls {
		switch got := <-answers; {
		case got.err == nil:
			grants++
			token = got.token
		case !errors.Is(got.err, lock.ErrFoundElsewhere):
			t.Errorf("a call is told %v", got.err)
		}
	}
	if grants != 1 {
		t.Errorf("%d calls were granted the lock", grants)
	}
	return token
}

// All calls of one request wait as one: the grant of one ends the waits of all, and no release hands the lock to the same
// request again.
func TestARepeatedRequestWaitsOnce(t *testing.T) {
	for title, before := range map[string]int{"alone": 0, "behind another caller": 1} {
		bubbleOf(t, title, func(t *testing.T) {
			running := start(t, newEtcd())
			acquire(t, running, by("first"))
			others, repeated := make(chan answer, 2), make(chan answer, 3)
			for range before {
				queueUp(t.Context(), t, running, waiting("before", time.Hour), others)
			}
			for range 3 {
				queueUp(t.Context(), t, running, waiting(repeatedOwner, time.Hour), repeated)
			}
			queueUp(t.Context(), t, running, waiting("behind", time.Hour), others)
			release(t, running, "first")
			synctest.Wait()
			for range before {
				release(t, running, (<-others).owner)
			}
			token := wantOneGrant(t, repeated, 3)
			release(t, running, repeatedOwner)
			wantNext(t, others, "behind", token)
		})
	}
}

// A release that comes before the queue has told the repetitions hands the lock to none of them.
func TestAReleaseAtOnceIsNotForARepetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running := start(t, newEtcd())
		acquire(t, running, by("first"))
		answers := make(chan answer, 2)
		go func() {
			granted, err := running.Acquire(t.Context(), "default", waiting(repeatedOwner, time.Hour))
			if err == nil {
				err = running.Release(t.Context(), "default", key, lock.Proof{Owner: granted.Spec.Owner})
			}
			answers <- answer{err: err}
		}()
		synctest.Wait()
		queueUp(t.Context(), t, running, waiting(repeatedOwner, time.Hour), answers)
		release(t, running, "first")
		wantOneGrant(t, answers, 2)
	})
}

// A grant that no wait has made is that of the request, too: such as by a call that does not wait, or at another replica.
func TestARepetitionIsToldOfAGrantOutsideOfItsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		running, other := start(t, etcd), start(t, etcd)
		acquire(t, running, by("first"))
		repeated, ahead := make(chan answer, 2), make(chan answer, 1)
		queueUp(t.Context(), t, running, waiting(repeatedOwner, time.Hour), repeated)
		leaving, leave := context.WithCancel(t.Context())
		queueUp(leaving, t, running, waiting(repeatedOwner, time.Hour), ahead)
		leave() // The last that came is not the only one.
		<-ahead
		etcd.mute(true) // Or the call that waits would be quicker.
		release(t, other, "first")
		acquire(t, other, by(repeatedOwner))
		etcd.mute(false)
		etcd.touch()
		synctest.Wait()
		select {
		case got := <-repeated:
			if !errors.Is(got.err, lock.ErrFoundElsewhere) {
				t.Errorf("the call is told %v", got.err)
			}
		default:
			t.Error("the call waits although its request has been granted the lock")
		}
	})
}

// Equal owner tokens that callers have chosen are of callers that exclude each other.
func TestCallersThatShareANameExcludeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running := start(t, newEtcd())
		acquire(t, running, by("first"))
		answers := make(chan answer, 2)
		for range 2 {
			queueUp(t.Context(), t, running, waiting("shared", time.Hour), answers)
		}
		release(t, running, "first")
		granted := <-answers
		synctest.Wait()
		if len(answers) > 0 {
			t.Fatal("both have the lock")
		}
		release(t, running, "shared")
		wantNext(t, answers, "shared", granted.token)
	})
}
