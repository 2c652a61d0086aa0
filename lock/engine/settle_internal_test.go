package engine

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// A line that moves to this engine serves no one before those have come who stood there: the first to come need not be the
// first in line.
func TestALineThatMovesSettlesFirst(t *testing.T) {
	for name, isFreshFirst := range map[string]bool{"and no one else has come": false, "and a fresh call has come before": true} {
		t.Run(name, func(t *testing.T) { testALineThatMoves(t, isFreshFirst) })
	}
}

func testALineThatMoves(t *testing.T, isFreshFirst bool) {
	t.Helper()
	now := time.Now()
	q := newQueues(shows(nil), 0)
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report"}}
	join := func(request lock.Request, at time.Time) *queue {
		request.Wait = lock.WaitForever
		queue, _, err := q.add(nameOf(held), waiterFor(request, at), at)
		if err != nil {
			t.Fatal(err)
		}
		return queue
	}
	moved := func(place time.Time) lock.Request {
		return lock.Request{Acquisition: rules.Acquisition{Owner: place.String()}, Since: place, PlaceSince: place}
	}
	first, second := now.Add(-time.Minute), now.Add(-time.Second)
	if isFreshFirst {
		join(lock.Request{}, now)
	}
	queue := join(moved(second), now)
	if recipient := handedTo(q, held, now); recipient != nil {
		t.Error("the first to come is handed the lock")
	}
	if next := q.next(queue, now, time.Second); next.do != doSleep || next.pause != settleFor {
		t.Errorf("the first to come contends after %s", next.pause)
	}
	join(moved(first), now.Add(settleFor/2))
	recipient := handedTo(q, held, now.Add(settleFor))
	if recipient == nil || recipient.request.Owner != first.String() {
		t.Errorf("%+v is handed the lock", recipient)
	}
}

// Those who wait here from the beginning on are served at once.
func TestALineThatBeginsHereIsServedAtOnce(t *testing.T) {
	now := time.Now()
	q := newQueues(shows(nil), 0)
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report"}}
	joined := waiterFor(lock.Request{Wait: lock.WaitForever}, now)
	if _, _, err := q.add(nameOf(held), joined, now); err != nil {
		t.Fatal(err)
	}
	if recipient := handedTo(q, held, now); recipient != joined {
		t.Error("a waiter is not handed the lock")
	}
}
