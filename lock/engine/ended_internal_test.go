package engine

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

func TestWhenAReleaseWaitsForAFollower(t *testing.T) {
	now := time.Unix(1e9, 0)
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: "2"}}
	quick := &series{handOffs: 1, since: now, last: now, uid: "2"}
	cases := map[string]struct {
		series *series
		after  time.Duration
		given  func(*queues)
		want   bool
	}{
		"at once":                     {quick, 0, func(*queues) {}, true},
		"after a use":                 {quick, 2 * quickRelease, func(*queues) {}, false},
		"when the series is over":     {&series{handOffs: maxHandOffs, since: now, last: now, uid: "2"}, 0, func(*queues) {}, false},
		"when it was not handed off":  {nil, 0, func(*queues) {}, false},
		"when the engine has stopped": {quick, 0, (*queues).stop, false},
		"when one has joined by now": {quick, 0, func(q *queues) {
			_, _, _ = q.add(nameOf(held), newWaiter(), now)
		}, true},
	}
	for title, test := range cases {
		t.Run(title, func(t *testing.T) {
			q := newQueues(&shown{handOffs: test.series}, 0)
			test.given(q)
			queue := q.hold(held, now)
			joins := q.expect(queue, held.UID, now.Add(test.after))
			if (joins != nil) != test.want {
				t.Fatalf("it waits: %t", joins != nil)
			}
			if joins == nil {
				return
			}
			_, _, _ = q.add(nameOf(held), newWaiter(), now)
			select {
			case <-joins:
			default:
				t.Error("it is not told of a waiter that joins")
			}
		})
	}
}

// The engine knows that the object has ended, whatever the informer still shows.
func TestAQueueThatBeginsAfterADeleteReadsTheLock(t *testing.T) {
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: "2", ResourceVersion: "10"}}
	now := time.Unix(1e9, 0)
	for name, isDeleted := range map[string]bool{"before the answer": false, "after the answer": true} {
		t.Run(name, func(t *testing.T) {
			q := newQueues(showsForeign(held), 0)
			releasing := q.hold(held, now)
			if isDeleted {
				q.recordDeleted(held, now)
				q.letGo(releasing)
			}
			queue, _, _ := q.add(nameOf(held), newWaiter(), now)
			if isProven := !queue.rechecks.provenAt.IsZero(); isProven == isDeleted {
				t.Errorf("the state is proven: %t", isProven)
			}
		})
	}
}

// What the watch does not prove is read, though the engine has written it: that may be long ago.
func TestAQueueThatBeginsWithAClosedWatchReadsTheLock(t *testing.T) {
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: "2", ResourceVersion: "10"}}
	now := time.Unix(1e9, 0)
	for _, isClosed := range []bool{true, false} {
		q := newQueues(shows(held), 0)
		q.setWatch(isClosed, now)
		queue, _, _ := q.add(nameOf(held), newWaiter(), now)
		if isProven := !queue.rechecks.provenAt.IsZero(); isProven == isClosed {
			t.Errorf("closed %t, proven %t", isClosed, isProven)
		}
	}
}

// The lock may have been renewed through another engine, and the informer may not have shown that.
func TestADeleteOfANewerStateTellsThoseWhoWait(t *testing.T) {
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: "2", ResourceVersion: "10"}}
	now := time.Unix(1e9, 0)
	for title, test := range map[string]struct {
		uid     types.UID
		version string
		isGone  bool
	}{
		"of the object":                   {"2", "12", true},
		"of the object in an older state": {"2", "9", true},
		"of one before it":                {"1", "8", false},
		"of one after it":                 {"3", "12", true},
		"of one of an unknown version":    {"3", "", false},
	} {
		q := newQueues(showsForeign(held), 0)
		queue, _, _ := q.add(nameOf(held), newWaiter(), now)
		deleted := held.DeepCopy()
		deleted.UID, deleted.ResourceVersion = test.uid, test.version
		q.recordDeleted(deleted, now)
		if (queue.seen.lock == nil) != test.isGone {
			t.Errorf("after the delete %s, the lock is %v", title, queue.seen.lock)
		}
	}
}

// The answers to two deletes may be taken in the other way round, and a read for the head later than both.
func TestALateDeleteHidesNoLaterOne(t *testing.T) {
	now := time.Unix(1e9, 0)
	state := func(uid types.UID, version string) *v1alpha1.Lock {
		held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: uid, ResourceVersion: version}}
		held.Spec.ExpireTime = new(v1alpha1.NewTimestamp(now.Add(time.Hour)))
		return held
	}
	for title, slow := range map[string]*v1alpha1.Lock{
		"of the later object, renewed elsewhere": state("2", "25"),
		"of the earlier object":                  state("1", "10"),
		"of an object before both":               state("0", "5"),
	} {
		t.Run(title, func(t *testing.T) {
			q, queue := queueOf(state("1", "10"))
			queue.seen = lastSeen{}
			q.recordDeleted(state("2", "20"), now)
			q.recordDeleted(state("1", "10"), now)
			q.recordHeld(queue, slow, false, now, 0)
			if queue.seen.lock != nil {
				t.Errorf("a slow read shows %s as held", queue.seen.lock.UID)
			}
		})
	}
	q, queue := queueOf(state("1", "10"))
	q.recordDeleted(state("2", "20"), now)
	q.recordHeld(queue, state("3", "30"), false, now, 0)
	if queue.seen.lock == nil {
		t.Error("the next object is not seen")
	}
}

// The heads of other engines learn of the end at the same moment as this one, whoever has ended the lock.
func TestADeleteSpreadsThoseWhoHaveLostRaces(t *testing.T) {
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: "2", ResourceVersion: "10"}}
	now := time.Unix(1e9, 0)
	q := newQueues(showsForeign(held), time.Second)
	q.random = func() float64 { return 0.9 }
	queue, _, _ := q.add(nameOf(held), newWaiter(), now)
	q.spread.lost()
	queue.hasLost = true
	q.recordDeleted(held, now)
	if queue.delay == 0 || !queue.freedAt.Equal(now) {
		t.Errorf("the head tries %v after %v", queue.delay, queue.freedAt)
	}
}

// One lock of an engine is contended with other engines, and another one is not.
func TestLossesOfOneLockDelayNoOther(t *testing.T) {
	now := time.Unix(1e9, 0)
	lockNamed := func(name string) *v1alpha1.Lock {
		return &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: "10",
		}}
	}
	hot, calm := lockNamed("hot"), lockNamed("calm")
	q := newQueues(newLockCache(nil, nil), time.Second)
	q.random = func() float64 { return 0.9 }
	queueOf := func(held *v1alpha1.Lock) *queue {
		queue, _, _ := q.add(nameOf(held), newWaiter(), now)
		queue.seen.update(lock.Change{Lock: held}, true)
		return queue
	}
	ofHot, ofCalm := queueOf(hot), queueOf(calm)
	q.recordHeld(ofHot, hot, true, now, 0)
	losses := q.spread.losses
	q.recordDeleted(hot, now)
	q.recordDeleted(calm, now)
	if ofHot.delay == 0 || ofCalm.delay != 0 {
		t.Errorf("the head of the lost lock waits %v, that of the other %v", ofHot.delay, ofCalm.delay)
	}
	next := calm.DeepCopy()
	next.UID, next.ResourceVersion = "next", "20"
	q.changed(nameOf(calm), lock.Change{Lock: next}, now)
	q.recordAcquired(ofCalm, next, true, now)
	if losses == 0 || q.spread.losses != losses {
		t.Errorf("the other lock has changed the losses from %v to %v", losses, q.spread.losses)
	}
	next = hot.DeepCopy()
	next.UID, next.ResourceVersion = "next", "20"
	q.recordAcquired(ofHot, next, true, now)
	if q.spread.losses >= losses {
		t.Errorf("a race that was won leaves %v of %v losses", q.spread.losses, losses)
	}
}
