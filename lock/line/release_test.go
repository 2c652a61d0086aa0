package line_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// A release that the home gets round to late ends the grant that it was for, or none.
func TestALateReleaseDoesNotEndTheNextGrant(t *testing.T) {
	for name, owner := range map[string]string{"a name": "job", "a random owner token that is used again": uuid.NewString()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				replicas := start(t, time.Millisecond, time.Millisecond)
				home, edge := replicas.all[replicas.home()], replicas.edges()[0]
				replicas.passOn(home, edge, owner)
				home.slow("delete", 2*time.Second)
				replicas.release(edge, owner)
				replicas.hold(edge, owner)
				<-time.After(4 * time.Second)
				if holder := replicas.etcd.owner(); holder != owner {
					t.Errorf("the lock is held by %q", holder)
				}
			})
		})
	}
}

// A release that its replica repeats, since the home is late to answer, does not end the next grant under the same
// owner token.
func TestARepeatedReleaseDoesNotEndTheNextGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond)
		home, edge := replicas.all[replicas.home()], replicas.edges()[0]
		replicas.hold(home, "first")
		told := replicas.wait(t.Context(), edge, by("job", time.Hour))
		next := replicas.wait(t.Context(), home, by("job", time.Hour))
		replicas.release(home, "first")
		replicas.granted(told, time.Second)
		<-time.After(time.Second)
		edge.isDeaf.Store(true)
		// The caller may have meant either grant.
		if err := edge.Release(t.Context(), "default", key, lock.Proof{Owner: "job"}); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("the release is told %v", err)
		}
		edge.isDeaf.Store(false)
		<-time.After(time.Second)
		if owner := replicas.etcd.owner(); owner != "job" {
			t.Errorf("the lock is held by %q", owner)
		}
		replicas.granted(next, time.Second)
	})
}

// A release is not told that there is no lock because the home has ended it, and could not say so. The replica of
// the release was not shown the lock before.
func TestAReleaseIsToldWhatItHasDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, 5*time.Second, 5*time.Second)
		edges := replicas.edges()
		home := replicas.all[replicas.home()]
		replicas.hold(home, "first")
		told := replicas.wait(t.Context(), home, by("next", time.Hour))
		<-time.After(6 * time.Second)
		replicas.release(home, "first")
		replicas.granted(told, time.Second)
		edges[0].isDeaf.Store(true)
		replicas.release(edges[0], "next")
		if owner := replicas.etcd.owner(); owner != "" {
			t.Errorf("the lock is held by %q", owner)
		}
	})
}

// That the home does not answer does not make a release succeed that was none, nor a renewal late.
func TestAHomeThatIsSilentHidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
		home, edge := replicas.all[replicas.home()], replicas.edges()[0]
		replicas.passOn(home, edge, "job")
		<-time.After(time.Second)
		home.isSilent.Store(true)
		began := time.Now()
		if _, err := edge.Renew(t.Context(), "default", key, lock.Proof{Owner: "job"}, 0); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 600*time.Millisecond {
			t.Errorf("the renewal took %v", took)
		}
		if err := edge.Release(t.Context(), "default", key, lock.Proof{Owner: "another"}); !errors.Is(err, lock.ErrOwnerMismatch) {
			t.Errorf("release by another: %v", err)
		}
		replicas.release(edge, "job")
		<-time.After(10 * time.Millisecond)
		if err := edge.Release(t.Context(), "default", key, lock.Proof{Owner: "job"}); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("second release: %v", err)
		}
	})
}

// Two replicas release one grant at once, of which the home knows. The one whose release the home began, and another call
// has overtaken, does not take that for a release of its own.
func TestOneOfTwoReleasesThroughTwoReplicasHasEndedTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
		home, edges := replicas.all[replicas.home()], replicas.edges()
		replicas.hold(home, "job")
		<-time.After(time.Second)
		home.slow("delete", 100*time.Millisecond)
		overtaken := make(chan error, 1)
		go func() { overtaken <- edges[0].Release(t.Context(), "default", key, lock.Proof{Owner: "job"}) }()
		<-time.After(50 * time.Millisecond)
		replicas.release(edges[1], "job")
		if err := <-overtaken; !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("the overtaken release is told %v", err)
		}
	})
}

// That a replica itself has done nothing does not say that of its home, which did not answer.
func TestAReleaseThatTheHomeDidNotAnswerMayHaveHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond)
		home, edge := replicas.all[replicas.home()], replicas.edges()[0]
		replicas.hold(home, "job")
		<-time.After(time.Second)
		edge.isDeaf.Store(true)
		edge.isDead.Store(true) // It cannot reach the API server.
		if err := edge.Release(t.Context(), "default", key, lock.Proof{Owner: "job"}); !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrNothingDone) {
			t.Errorf("got %v", err)
		}
		edge.isDead.Store(false)
		edge.isDeaf.Store(false)
	})
}

// Neither release is told by its home in time. The lock is over when the replica of each looks.
func TestOneOfTwoReleasesThatASlowHomeAnswersHasEndedTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
		home, edges := replicas.all[replicas.home()], replicas.edges()
		replicas.hold(home, "job")
		<-time.After(time.Second)
		home.slow("delete", 700*time.Millisecond)
		for _, edge := range edges {
			edge.slow("delete", 500*time.Millisecond)
		}
		told := make(chan error, len(edges))
		for _, edge := range edges {
			go func() { told <- edge.Release(t.Context(), "default", key, lock.Proof{Owner: "job"}) }()
		}
		released := 0
		for range edges {
			if err := <-told; err == nil {
				released++
			} else if !errors.Is(err, lock.ErrNotHeld) {
				t.Error(err)
			}
		}
		if released != 1 {
			t.Errorf("%d of two releases have ended the grant", released)
		}
	})
}

// A slow home knows nothing of the grant, and its replica knows of a former one to the same owner alone.
func TestAReleaseThatASlowHomeDeclinesMayMeanTheGrantThatThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, 5*time.Second, 5*time.Second)
		home, edges := replicas.all[replicas.home()], replicas.edges()
		<-time.After(6 * time.Second)
		replicas.passOn(home, edges[0], "job")
		replicas.release(home, "job")
		if _, err := edges[1].engine.Acquire(t.Context(), "default", by("job", 0)); err != nil {
			t.Fatal(err)
		}
		edges[0].isDeaf.Store(true)
		time.AfterFunc(700*time.Millisecond, func() { edges[0].isDeaf.Store(false) })
		if err := edges[0].Release(t.Context(), "default", key, lock.Proof{Owner: "job"}); !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("the release is told %v", err)
		}
		if owner := replicas.etcd.owner(); owner != "job" {
			t.Errorf("the lock is held by %q", owner)
		}
		<-time.After(3 * time.Second) // The replica does not remember the former grant any more.
		replicas.release(edges[0], "job")
		if owner := replicas.etcd.owner(); owner != "" {
			t.Errorf("the lock is held by %q", owner)
		}
	})
}

// The clock of the home has stood still since it renewed the grant, so that the renewal looks later than the releases.
func TestAHomeThatTakesARenewalForALaterOneHasReleasedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas, clocks := startAhead(t)
		home, edge := replicas.all[replicas.home()], replicas.edges()[0]
		replicas.hold(home, "job")
		if _, err := home.Renew(t.Context(), "default", key, lock.Proof{Owner: "job"}, time.Hour); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		clocks[home.Self()].Store(-int64(5 * time.Second))
		edge.slow("delete", 100*time.Millisecond)
		told := make(chan error, 2)
		for range 2 {
			go func() { told <- edge.Release(t.Context(), "default", key, lock.Proof{Owner: "job"}) }()
		}
		one, another := <-told, <-told
		if errors.Is(another, lock.ErrNotHeld) {
			one, another = another, one
		}
		if another != nil || !errors.Is(one, lock.ErrNotHeld) {
			t.Errorf("the releases are told %v and %v", one, another)
		}
	})
}

// A caller that has given its renewal up is told so at once, and not when the home should have answered.
func TestARenewalEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond)
		home, edge := replicas.all[replicas.home()], replicas.edges()[0]
		replicas.hold(home, "job")
		home.isSilent.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := edge.Renew(ctx, "default", key, lock.Proof{Owner: "job"}, 0)
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 100*time.Millisecond {
			t.Errorf("after %v the caller is told %v", took, err)
		}
	})
}

// A replica that knows a former grant to an owner says of no release that it has succeeded, while the owner holds the
// lock by a later one.
func TestAReleaseOfALaterGrantIsNotLost(t *testing.T) {
	for name, since := range map[string]time.Duration{"at once": 100 * time.Millisecond, "after minutes": 10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				replicas := start(t, time.Millisecond, time.Hour, time.Hour)
				home, edge := replicas.all[replicas.home()], replicas.edges()[0]
				replicas.passOn(home, edge, "ci")
				replicas.release(home, "ci")
				replicas.hold(home, "ci")
				<-time.After(since)
				home.isSilent.Store(true)
				err := edge.Release(t.Context(), "default", key, lock.Proof{Owner: "ci"})
				if owner := replicas.etcd.owner(); (owner == "") != (err == nil) {
					t.Errorf("the caller is told %v, and the lock is held by %q", err, owner)
				}
			})
		})
	}
}

// A home whose write goes unanswered, and which finds the grant over that it knows, does not say that it has released a later
// one to the same owner.
func TestAReleaseOfALaterGrantIsNotTakenForThatOfAFormerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Hour, time.Hour, time.Hour)
		home, edge, other := replicas.all[replicas.home()], replicas.edges()[0], replicas.edges()[1]
		replicas.passOn(home, edge, "ci")
		_ = replicas.wait(t.Context(), home, by("next", time.Hour))
		if err := other.engine.Release(t.Context(), "default", key, lock.Proof{Owner: "ci"}); err != nil {
			t.Fatal(err)
		}
		if _, err := other.engine.Acquire(t.Context(), "default", by("ci", 0)); err != nil {
			t.Fatal(err)
		}
		home.meets(lost, answered)
		err := edge.Release(t.Context(), "default", key, lock.Proof{Owner: "ci"})
		if owner := replicas.etcd.owner(); owner == "ci" && err == nil {
			t.Error("the caller is told that the lock is released, and it is held")
		}
	})
}

// A renewal that the home gets round to late, when its replica has renewed the lock by itself, does not shorten what the
// holder has been told since.
func TestALateRenewalDoesNotShortenTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
		home, edge := replicas.all[replicas.home()], replicas.edges()[0]
		replicas.passOn(home, edge, "next")
		home.slow("update", 1500*time.Millisecond)
		var until time.Time
		for _, ttl := range []time.Duration{10 * time.Second, time.Hour} {
			renewed, err := edge.Renew(t.Context(), "default", key, lock.Proof{Owner: "next"}, ttl)
			if err != nil {
				t.Fatal(err)
			}
			until = renewed.Spec.ExpireTime.Time
		}
		<-time.After(5 * time.Second)
		held, err := edge.Get(t.Context(), "default", key)
		if err != nil {
			t.Fatal(err)
		}
		if expires := held.Spec.ExpireTime.Time; expires.Before(until) {
			t.Errorf("the lock expires %v before what the holder was told", until.Sub(expires))
		}
	})
}

// A replica that does not know yet that another one has granted its grant to the same caller anew takes the end of its
// own one for no release.
func TestAFormerGrantIsNotTakenForThePresentOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, 5*time.Second, time.Millisecond)
		former, present := replicas.all["replica-0"], replicas.all["replica-1"]
		owner, id := uuid.NewString(), uuid.NewString()
		enlist := func(at *replica, request lock.Request) {
			t.Helper()
			if _, err := at.engine.Enlist(t.Context(), "default", request, func(*v1alpha1.Lock, error) bool { return true }); err != nil {
				t.Fatal(err)
			}
			<-time.After(100 * time.Millisecond)
		}
		for try, at := range []*replica{former, present} {
			request := by(owner, time.Hour)
			request.ID = rules.NthTry(id, uint32(try+1))
			enlist(at, request)
		}
		enlist(former, by("next", time.Hour))
		var isLost atomic.Bool
		former.fates.Store(new(func() fate {
			if isLost.CompareAndSwap(false, true) {
				return lost
			}
			return answered
		}))
		err := former.engine.Release(t.Context(), "default", key, lock.Proof{Owner: owner})
		if held := replicas.etcd.owner(); err != nil || held == owner || !isLost.Load() {
			t.Errorf("the caller is told %v, and the lock is held by %q", err, held)
		}
	})
}

// A release that comes to an end after the ttl has not released the lock: by another clock it may be held still.
func TestALockThatExpiresDuringItsReleaseIsNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond)
		home, edge := replicas.all[replicas.home()], replicas.edges()[0]
		replicas.hold(home, "first")
		request := by(uuid.NewString(), time.Hour)
		request.TTL = 10 * time.Second
		told := replicas.wait(t.Context(), edge, request)
		replicas.release(home, "first")
		replicas.granted(told, time.Second)
		<-time.After(9700 * time.Millisecond)
		home.isSilent.Store(true)
		err := edge.Release(t.Context(), "default", key, lock.Proof{Owner: request.Owner})
		if !errors.Is(err, lock.ErrExpired) || replicas.etcd.owner() != request.Owner {
			t.Errorf("the caller is told %v", err)
		}
	})
}

// A release whose delete goes unanswered has succeeded if the lock that it has read is gone: a lock of the same owner that
// was granted since is another one, and a caller that was told to try again would end it.
func TestAReleaseThatHasReadItsLockIsNotForTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := start(t, time.Millisecond, time.Millisecond)
		first, other := replicas.at(0), replicas.at(1)
		if _, err := other.engine.Acquire(t.Context(), "default", by("job", 0)); err != nil {
			t.Fatal(err)
		}
		told := make(chan error, 1)
		go func() {
			_, err := other.engine.Acquire(t.Context(), "default", by("job", time.Hour))
			told <- err
		}()
		<-time.After(time.Second)
		next := doneUnanswered
		fates := func() fate {
			defer func() { next = answered }()
			return next
		}
		first.fates.Store(&fates)
		if err := first.engine.Release(t.Context(), "default", key, lock.Proof{Owner: "job"}); err != nil {
			t.Errorf("the release is told %v", err)
		}
		replicas.granted(told, time.Second)
		if owner := replicas.etcd.owner(); owner != "job" {
			t.Errorf("the next lock is held by %q", owner)
		}
	})
}

// A caller that is told that its release is not known to have happened may renew the lock through another replica.
// None of those that go on with the release ends it then.
func TestAReleaseOfACallerThatHasGoneOnIsGivenUp(t *testing.T) {
	for name, test := range map[string]struct {
		isAtHome bool
		// stays is how long the caller waits for its answer; it renews the lock as long after that.
		stays time.Duration
		// slow is how long deletes by the home take.
		slow time.Duration
		// renewing is the other replica that it asks then.
		renewing int
	}{
		"at the home":                                                 {isAtHome: true, stays: time.Second, slow: 3 * time.Second, renewing: 1},
		"through another replica":                                     {stays: time.Second, slow: 3 * time.Second, renewing: 1},
		"before the other replica gives the home up":                  {stays: 100 * time.Millisecond, slow: 3 * time.Second, renewing: 1},
		"before the home is late":                                     {stays: 100 * time.Millisecond, slow: 400 * time.Millisecond, renewing: 1},
		"before the replica gives the home up, through that replica":  {stays: 100 * time.Millisecond, slow: 3 * time.Second},
		"before the home is late, through the replica of the release": {stays: 100 * time.Millisecond, slow: 400 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				replicas := start(t, time.Millisecond, time.Millisecond, time.Millisecond)
				home, edges := replicas.all[replicas.home()], replicas.edges()
				replicas.hold(home, "a")
				<-time.After(time.Second)
				home.slow("delete", test.slow)
				edges[0].slow("delete", 4*time.Second)
				releasing := edges[0]
				if test.isAtHome {
					releasing = home
				}
				caller, leave := context.WithTimeout(t.Context(), test.stays)
				defer leave()
				if err := releasing.Release(caller, "default", key, lock.Proof{Owner: "a"}); !errors.Is(err, lock.ErrUnavailable) {
					t.Errorf("the release is told %v", err)
				}
				<-time.After(test.stays)
				if _, err := edges[test.renewing].Renew(t.Context(), "default", key, lock.Proof{Owner: "a"}, 10*time.Minute); err != nil {
					t.Fatal(err)
				}
				<-time.After(time.Minute)
				if owner := replicas.etcd.owner(); owner != "a" {
					t.Errorf("the lock is held by %q", owner)
				}
			})
		})
	}
}
