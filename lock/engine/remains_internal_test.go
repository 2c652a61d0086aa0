package engine

import (
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

func remainsOf(burst handOffBurst, losses float64, at time.Time, shown ...*v1alpha1.Lock) (*queues, types.NamespacedName) {
	q := newQueues(shows(append(shown, nil)[0]), 0)
	name := types.NamespacedName{Namespace: "default", Name: "report"}
	q.keepRemains(&queue{name: name, burst: burst, spread: spread{losses: losses}}, at)
	return q, name
}

func TestHowLongABurstOutlivesItsQueue(t *testing.T) {
	ended := time.Unix(1e9, 0)
	full := handOffBurst{handOffs: maxHandOffs, since: ended.Add(-time.Second), last: ended, uid: "2"}
	old := handOffBurst{handOffs: maxHandOffs, since: ended.Add(-time.Hour), last: ended.Add(-2 * keepBurstFor), uid: "2"}
	shown := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{UID: "2"}}
	another := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{UID: "3"}}
	cases := map[string]struct {
		burst      handOffBurst
		losses     float64
		shown      *v1alpha1.Lock
		after      time.Duration
		wantLosses float64
		wantBurst  handOffBurst
	}{
		"at once":                        {full, 2, nil, 0, 2, full},
		"when the burst counts no more":  {full, 2, nil, 2 * keepBurstFor, 2, handOffBurst{}},
		"when nothing counts any more":   {full, 2, nil, 2 * keepSpreadFor, 0, handOffBurst{}},
		"of a queue that lived for long": {old, 2, nil, 0, 2, handOffBurst{}},
		"while the object is there":      {old, 2, shown, time.Hour, 0, old},
		"with another object":            {full, 2, another, 2 * keepBurstFor, 2, handOffBurst{}},
	}
	for title, test := range cases {
		t.Run(title, func(t *testing.T) {
			q, name := remainsOf(test.burst, test.losses, ended, test.shown)
			kept, burst, _ := q.takeRemains(name, ended.Add(test.after))
			if kept.losses != test.wantLosses || burst != test.wantBurst {
				t.Errorf("losses %v, burst %+v", kept.losses, burst)
			}
		})
	}
	t.Run("of a queue that leaves nothing", func(t *testing.T) {
		if q, _ := remainsOf(old, 0, ended); len(q.ended) > 0 {
			t.Errorf("kept %+v", q.ended)
		}
	})
}

// When the object was deleted elsewhere, the waiters of other engines have had their chance.
func TestABurstIsOfOneObject(t *testing.T) {
	now := time.Unix(1e9, 0)
	var burst handOffBurst
	for range maxHandOffs {
		burst.count("1", now)
	}
	if burst.mayGoOn("1", now) {
		t.Fatal("it has no bound")
	}
	if !burst.mayGoOn("2", now) {
		t.Error("another object cannot be handed off")
	}
	later := now.Add(time.Hour)
	burst.count("2", later)
	if want := (handOffBurst{handOffs: 1, since: later, last: later, uid: "2"}); burst != want {
		t.Errorf("burst %+v", burst)
	}
}

// An informer of the locks in use forgets one that is held, and the engine knows better.
func TestABurstOutlivesItsQueueWhileItsObjectIsThere(t *testing.T) {
	ended := time.Unix(1e9, 0)
	burst := handOffBurst{handOffs: 1, since: ended, last: ended, uid: "2"}
	q, name := remainsOf(burst, 0, ended)
	q.known = &shown{held: &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{UID: "2"}}, isForgotten: true}
	if _, kept, _ := q.takeRemains(name, ended.Add(time.Hour)); kept != burst {
		t.Errorf("burst %+v", kept)
	}
}

// Queues of keys that are used once must not push out what counts.
func TestRemainsThatCountNoMoreAreDropped(t *testing.T) {
	now := time.Unix(1e9, 0)
	held := handOffBurst{handOffs: 5, since: now, last: now, uid: "2"}
	q, name := remainsOf(held, 0, now, &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{UID: "2"}})
	for number := range 3 * minSweep {
		now = now.Add(keepSpreadFor / minSweep)
		gone := handOffBurst{handOffs: 1, since: now, last: now, uid: "gone"}
		q.keepRemains(&queue{name: types.NamespacedName{Name: strconv.Itoa(number)}, burst: gone}, now)
	}
	if len(q.ended) > minSweep {
		t.Errorf("%d are kept", len(q.ended))
	}
	if _, burst, _ := q.takeRemains(name, now); burst != held {
		t.Errorf("burst %+v", burst)
	}
}

// After a delete without a queue the waiters of other engines have had their chance, and a caller may follow at once.
func TestADeleteEndsTheBurstOfAQueueThatHasEnded(t *testing.T) {
	now := time.Unix(1e9, 0)
	full := handOffBurst{handOffs: maxHandOffs, since: now, last: now, uid: "2"}
	for uid, want := range map[types.UID]handOffBurst{"2": {handOffs: 1, since: now, last: now}, "1": full} {
		q, name := remainsOf(full, 0, now)
		q.recordDeleted(&v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, UID: uid}}, now)
		if _, burst, _ := q.takeRemains(name, now); burst != want {
			t.Errorf("after the delete of %s: %+v", uid, burst)
		}
	}
}

// A release for which no one waits makes what is remembered count no longer.
func TestAReleaseMakesTheRemainsCountNoLonger(t *testing.T) {
	ended := time.Unix(1e9, 0)
	q, name := remainsOf(handOffBurst{}, 2, ended)
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	later := ended.Add(keepSpreadFor / 2)
	q.letGo(q.hold(held, later), later)
	if len(q.byName) > 0 || q.ended[name].at != ended {
		t.Errorf("kept: %+v", q.ended[name])
	}
}

func TestWhenAReleaseWaitsForAFollower(t *testing.T) {
	now := time.Unix(1e9, 0)
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: "2"}}
	quick := handOffBurst{handOffs: 1, since: now, last: now, uid: "2"}
	cases := map[string]struct {
		burst handOffBurst
		after time.Duration
		given func(*queues)
		want  bool
	}{
		"at once":                     {quick, 0, func(*queues) {}, true},
		"after a use":                 {quick, 2 * quickRelease, func(*queues) {}, false},
		"when the burst is over":      {handOffBurst{handOffs: maxHandOffs, since: now, last: now, uid: "2"}, 0, func(*queues) {}, false},
		"when the engine has stopped": {quick, 0, (*queues).stop, false},
		"when one has joined by now": {quick, 0, func(q *queues) {
			_, _, _ = q.add(nameOf(held), newWaiter(), now)
		}, true},
	}
	for title, test := range cases {
		t.Run(title, func(t *testing.T) {
			q, _ := remainsOf(test.burst, 0, now)
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
				q.letGo(releasing, now)
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

// The event that follows the answer shortens the pause of the queue, whatever has ended the lock.
func TestTheEventOfADeleteShortensThePause(t *testing.T) {
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: "2", ResourceVersion: "10"}}
	now := time.Unix(1e9, 0)
	q := newQueues(showsForeign(held), 0)
	queue, _, _ := q.add(nameOf(held), newWaiter(), now)
	q.recordDeleted(held, now)
	gone := held.DeepCopy()
	gone.ResourceVersion = "12"
	q.changed(nameOf(held), lock.Change{Lock: gone, IsGone: true}, now)
	if pause := queue.yieldUntil.Sub(now); pause != headStart {
		t.Errorf("the queue pauses for %v", pause)
	}
}

// The heads of other engines learn of the end at the same moment as this one, whoever has ended the lock.
func TestADeleteSpreadsThoseWhoHaveLostRaces(t *testing.T) {
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: "2", ResourceVersion: "10"}}
	now := time.Unix(1e9, 0)
	q := newQueues(showsForeign(held), time.Second)
	q.random = func() float64 { return 0.9 }
	queue, _, _ := q.add(nameOf(held), newWaiter(), now)
	queue.spread.lost()
	q.recordDeleted(held, now)
	if queue.spread.delay == 0 || !queue.spread.until.Equal(now.Add(queue.spread.delay)) {
		t.Errorf("the head tries after %v", queue.spread.until.Sub(now))
	}
}
