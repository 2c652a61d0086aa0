package leadership_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"forrst.dev/lock-operator/controllers/leadership"
)

type fakeLeadership struct {
	isLeader atomic.Bool
	gained   chan struct{}
}

func (l *fakeLeadership) IsLeader() bool { return l.isLeader.Load() }

func (l *fakeLeadership) Gained() <-chan struct{} { return l.gained }

// fixture runs Enqueue with a list that fails as often as it is told to.
type fixture struct {
	leadership *fakeLeadership
	clock      *clocktesting.FakeClock
	queue      leadership.Queue
	// failures is how many of the next calls fail; calls has a value for each call.
	failures atomic.Int32
	calls    chan struct{}
}

func start(t *testing.T, failures int32) *fixture {
	t.Helper()
	f := &fixture{
		leadership: &fakeLeadership{gained: make(chan struct{})},
		clock:      clocktesting.NewFakeClock(time.Now()),
		queue:      workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()),
		calls:      make(chan struct{}, 10),
	}
	f.failures.Store(failures)
	f.leadership.isLeader.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		leadership.Enqueue(ctx, f.leadership, f.clock, f.queue, f.every)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		f.queue.ShutDown()
	})
	f.leadership.gained <- struct{}{}
	return f
}

func (f *fixture) every(context.Context) ([]reconcile.Request, error) {
	defer func() { f.calls <- struct{}{} }()
	if f.failures.Add(-1) >= 0 {
		return nil, errors.New("no answer")
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "one"}}}, nil
}

// awaitPause returns once Enqueue waits before it calls the list again.
func (f *fixture) awaitPause(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !f.clock.HasWaiters() {
		if ctx.Err() != nil {
			t.Fatal("it does not wait")
		}
		runtime.Gosched()
	}
}

func TestRepeatsAListThatFails(t *testing.T) {
	f := start(t, 2)
	for range 2 {
		<-f.calls
		f.awaitPause(t)
		f.clock.Step(time.Minute)
	}
	<-f.calls
	if request, _ := f.queue.Get(); request.Name != "one" {
		t.Errorf("got %v", request)
	}
	f.leadership.gained <- struct{}{}
	<-f.calls
}

func TestStopsWhenLeadershipIsLost(t *testing.T) {
	f := start(t, 100)
	<-f.calls
	f.awaitPause(t)
	f.leadership.isLeader.Store(false)
	f.clock.Step(time.Minute)
	f.failures.Store(0)
	// That is taken up only when it waits for it again.
	f.leadership.gained <- struct{}{}
	<-f.calls
	if request, _ := f.queue.Get(); request.Name != "one" {
		t.Errorf("got %v", request)
	}
	if len(f.calls) > 0 {
		t.Error("listed while another replica led")
	}
}
