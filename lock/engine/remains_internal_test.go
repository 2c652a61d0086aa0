package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
)

func remainsOf(burst handOffBurst, losses float64, at time.Time) (*queues, types.NamespacedName) {
	q := newQueues(func(types.NamespacedName) *v1alpha1.Lock { return nil }, 0)
	name := types.NamespacedName{Namespace: "default", Name: "report"}
	q.keepRemains(&queue{name: name, burst: burst, spread: spread{losses: losses}}, at)
	return q, name
}

func TestHowLongABurstOutlivesItsQueue(t *testing.T) {
	ended := time.Unix(1e9, 0)
	full := handOffBurst{handOffs: maxHandOffs, since: ended.Add(-time.Second), last: ended}
	old := handOffBurst{handOffs: maxHandOffs, since: ended.Add(-time.Hour), last: ended.Add(-2 * keepBurstFor)}
	cases := map[string]struct {
		burst      handOffBurst
		losses     float64
		after      time.Duration
		wantLosses float64
		wantBurst  handOffBurst
	}{
		"at once":                        {full, 2, 0, 2, full},
		"when the burst counts no more":  {full, 2, 2 * keepBurstFor, 2, handOffBurst{}},
		"when nothing counts any more":   {full, 2, 2 * keepSpreadFor, 0, handOffBurst{}},
		"of a queue that lived for long": {old, 2, 0, 2, handOffBurst{}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			q, lock := remainsOf(test.burst, test.losses, ended)
			kept, burst := q.takeRemains(lock, ended.Add(test.after))
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

// After a delete without a queue the waiters of other engines have had their chance.
func TestADeleteEndsTheBurstOfAQueueThatHasEnded(t *testing.T) {
	now := time.Unix(1e9, 0)
	q, name := remainsOf(handOffBurst{handOffs: maxHandOffs, since: now, last: now}, 0, now)
	q.recordDeleted(&v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, UID: "2"}}, now)
	if _, burst := q.takeRemains(name, now); !burst.mayGoOn(now) {
		t.Errorf("the next queue hands nothing off: %+v", burst)
	}
}

func TestNoFollowerIsExpected(t *testing.T) {
	now := time.Unix(1e9, 0)
	quick := handOffBurst{handOffs: 1, since: now, last: now}
	cases := map[string]struct {
		burst handOffBurst
		after time.Duration
		given func(*queues)
	}{
		"after a use":                 {quick, 2 * quickRelease, func(*queues) {}},
		"when the burst is over":      {handOffBurst{handOffs: maxHandOffs, since: now, last: now}, 0, func(*queues) {}},
		"when the engine has stopped": {quick, 0, (*queues).stop},
	}
	for title, test := range cases {
		t.Run(title, func(t *testing.T) {
			q, name := remainsOf(test.burst, 0, now)
			if q.expect(name, now) == nil {
				if title != "when the burst is over" {
					t.Fatal("none is expected in any case")
				}
			}
			clear(q.expected)
			test.given(q)
			if q.expect(name, now.Add(test.after)) != nil {
				t.Error("a follower is expected")
			}
		})
	}
}

func TestAFollowerIsAwaitedUntilTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		q, name := remainsOf(handOffBurst{handOffs: 1, since: now, last: now}, 0, now)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if (&Engine{queues: q, clock: clock.RealClock{}}).awaitFollower(ctx, name) || time.Since(now) > 0 || len(q.expected) > 0 {
			t.Errorf("took %v, and %d are expected", time.Since(now), len(q.expected))
		}
	})
}

// The engine knows that the object has ended, whatever the informer still shows.
func TestAQueueThatBeginsAfterADeleteReadsTheLock(t *testing.T) {
	held := &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report", UID: "2", ResourceVersion: "10"}}
	isNotOwn := func(_ types.NamespacedName, seen *v1alpha1.Lock) (*v1alpha1.Lock, bool) { return seen, false }
	now := time.Unix(1e9, 0)
	for name, isDeleted := range map[string]bool{"before the answer": false, "after the answer": true} {
		t.Run(name, func(t *testing.T) {
			q := newQueues(func(types.NamespacedName) *v1alpha1.Lock { return held }, 0)
			q.beginEnding(held)
			if isDeleted {
				q.recordDeleted(held, now)
			}
			queue, _, _ := q.add(nameOf(held), newWaiter(), now, isNotOwn)
			if isProven := !queue.rechecks.provenAt.IsZero(); isProven == isDeleted {
				t.Errorf("the state is proven: %t", isProven)
			}
		})
	}
}
