package engine

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// A caller whose wait ends while its queue pauses must not be told that the free lock is held. It does not go ahead of those
// for whom the queue stands back.
func TestAWaitThatEndsBesideAFreeLockEndsWithATry(t *testing.T) {
	now := time.Unix(1e9, 0)
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: "2", ResourceVersion: "10"}}
	gone, other := held.DeepCopy(), held.DeepCopy()
	gone.ResourceVersion, other.UID, other.ResourceVersion = "11", "3", "12"
	other.Spec.ExpireTime = new(v1alpha1.NewTimestamp(now.Add(time.Hour)))
	freed := lock.Change{Lock: gone, IsGone: true}
	for title, test := range map[string]struct {
		pauses func(*queues, *queue)
		// standsBack is for how long the queue stands back for others.
		standsBack time.Duration
	}{
		"for the head start of others": {func(q *queues, _ *queue) {
			q.yield(nameOf(held))
			q.changed(nameOf(held), freed, now)
		}, headStart},
		"for the event of its own delete": {func(q *queues, _ *queue) { q.recordDeleted(held, now) }, yieldFor},
		"after losses": {func(q *queues, queue *queue) {
			q.spread.lost()
			queue.hasLost = true
			q.changed(nameOf(held), freed, now)
		}, 0},
		"after losses, and the lock is freed at that moment": {func(q *queues, queue *queue) {
			q.spread.lost()
			queue.hasLost = true
			queue.seen.lock = nil
			_ = q.giveUp(queue, queue.head(), now)
			queue.seen.lock = held
			q.changed(nameOf(held), freed, now)
		}, 0},
		"after a hand-off that has found no lock": {func(q *queues, queue *queue) {
			queue.seen.lock = nil
			q.recordHeld(queue, nil, false, now, 0)
		}, 0},
	} {
		t.Run(title, func(t *testing.T) {
			q, queue := queueOf(held)
			q.random = func() float64 { return 0.9 }
			head := queue.head()
			test.pauses(q, queue)
			if pause := queue.untilDue(now, 0); !head.isOverdue && pause <= 0 {
				t.Fatal("the queue does not pause")
			}
			if err := q.giveUp(queue, head, now); err != nil {
				t.Fatalf("the caller is told %v without a try", err)
			}
			if next := q.next(queue, now, 0); test.standsBack > 0 && next.pause != test.standsBack {
				t.Fatalf("it does not stand back, but %+v", next)
			} else if next.do != doTry {
				next = q.next(queue, now.Add(test.standsBack), 0)
				if next.waiter != head {
					t.Fatalf("no try, but %+v", next)
				}
			}
			q.recordHeld(queue, other, true, now, 0)
			gone := other.DeepCopy()
			gone.ResourceVersion = "13"
			q.changed(nameOf(other), lock.Change{Lock: gone, IsGone: true}, now)
			queue.delay, queue.freedAt = time.Second, now
			if next := q.next(queue, now.Add(test.standsBack), 0); next.do != doDismiss || next.waiter != head || !errors.Is(next.reason, lock.ErrTimeout) {
				t.Errorf("after its try: %+v", next)
			}
		})
	}
}

// Its place counts also for a caller whose wait ends before those have come who stood at the other engine.
func TestAWaitThatEndsWhileItsLineSettlesEndsWithATry(t *testing.T) {
	now := time.Now()
	q := newQueues(shows(nil), 0)
	name := types.NamespacedName{Namespace: "default", Name: "report"}
	join := func(place time.Time) (*queue, *waiter) {
		joined := waiterFor(lock.Request{Acquisition: rules.Acquisition{Owner: place.String()}, Wait: time.Second, Since: place, PlaceSince: place}, now)
		joined.take = func(*v1alpha1.Lock, error) bool { return true }
		queue, _, err := q.add(name, joined, now)
		if err != nil {
			t.Fatal(err)
		}
		return queue, joined
	}
	queue, overdue := join(now.Add(-time.Second))
	if err := q.giveUp(queue, overdue, now); err != nil {
		t.Fatalf("the caller is told %v without a try", err)
	}
	if next := q.next(queue, now, 0); next.do != doSleep || next.pause != settleFor {
		t.Errorf("before those have come who stood before it: %+v", next)
	}
	_, first := join(now.Add(-time.Minute))
	if next := q.next(queue, now, 0); next.do != doDismiss || next.waiter != overdue {
		t.Errorf("the caller has no try, and is not told: %+v", next)
	}
	if err := q.giveUp(queue, first, now); err != nil {
		t.Fatalf("the first is told %v without a try", err)
	}
	if next := q.next(queue, now.Add(settleFor), 0); next.do != doTry || next.waiter != first {
		t.Errorf("the first has no try: %+v", next)
	}
	q.recordHeld(queue, nil, false, now.Add(settleFor), 0)
	if next := q.next(queue, now.Add(settleFor), 0); next.do != doDismiss || next.waiter != first {
		t.Errorf("the first has had its try, and is not told: %+v", next)
	}
}
