package expiry

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"forrst.dev/lock-operator/controllers/leadership"
	"forrst.dev/lock-operator/lock/engine/compact"
	"forrst.dev/lock-operator/lock/rules"
)

func kept(key string, ttl time.Duration, at time.Time) *compact.Lock {
	return compact.Of(rules.Grant("a", rules.Acquisition{Key: key, Owner: "o", Holder: "alice", TTL: ttl}, rules.DefaultLimits(), at))
}

func names(requests []reconcile.Request) (found []string) {
	for _, request := range requests {
		found = append(found, request.Name)
	}
	return found
}

// added records what is enqueued.
type added struct {
	leadership.Queue

	names []string
}

func (a *added) Add(request reconcile.Request) { a.names = append(a.names, request.Name) }

// A lock is in the queue in time, though no event tells that its end has come near.
func TestASweepFindsALockBeforeItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, queue := time.Now(), &added{}
		locks := []*compact.Lock{kept("brief", time.Second, start), kept("long", 5*time.Minute, start)}
		reconciler := &Reconciler{
			Clock: clock.RealClock{}, ClockSkewAllowance: time.Second, Leadership: leadership.Always(),
			all: func() []*compact.Lock { return locks },
		}
		ctx, cancel := context.WithCancel(t.Context())
		go reconciler.sweep(ctx, clock.RealClock{}, queue)
		synctest.Wait()
		if !slices.Equal(queue.names, []string{"brief"}) {
			t.Fatalf("at first %v are enqueued", queue.names)
		}
		locks = locks[1:]
		for len(queue.names) == 1 && time.Since(start) < 5*time.Minute {
			<-time.After(time.Second) // of the bubble
			synctest.Wait()
		}
		if left := 5*time.Minute - time.Since(start); queue.names[len(queue.names)-1] != "long" || left < sweepPeriod {
			t.Errorf("%v are enqueued %s before the end of the last", queue.names, left)
		}
		cancel()
		synctest.Wait()
	})
}

type staleClock struct{ *clocktesting.FakeClock }

func (staleClock) IsFresh() bool { return false }

func TestAStaleClockIsFreshenedByOneLock(t *testing.T) {
	start := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	locks := []*compact.Lock{kept("b", 20*time.Minute, start), kept("a", 10*time.Minute, start), kept("c", 30*time.Minute, start)}
	reconciler := &Reconciler{Clock: staleClock{clocktesting.NewFakeClock(start)}, Leadership: leadership.Always(), all: func() []*compact.Lock { return locks }}
	if found := names(reconciler.soon()); len(found) != 1 || found[0] != "a" {
		t.Errorf("found %v", found)
	}
}
