package engine_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// lagging is an informer that reports every change late.
type lagging struct {
	engine.Informer
	ctx context.Context // the test's
	lag time.Duration
}

// AddEventHandler implements [lock.Informer].
func (l lagging) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	events := make(chan func(), 1000)
	go func() {
		for {
			select {
			case event := <-events:
				event()
			case <-l.ctx.Done():
				return
			}
		}
	}()
	later := func(event func()) {
		due := time.Now().Add(l.lag)
		events <- func() {
			pass(time.Until(due))
			event()
		}
	}
	return l.Informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { later(func() { handler.OnAdd(object, false) }) },
		UpdateFunc: func(old, object any) { later(func() { handler.OnUpdate(old, object) }) },
		DeleteFunc: func(object any) { later(func() { handler.OnDelete(object) }) },
	})
}

// The holders of the locks change faster than the informers report it.
func TestWaitersOfAnotherReplicaAreNotStarvedBehindTheirInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := newEtcd()
		ctx, cancel := context.WithCancel(t.Context())
		defer func() {
			cancel()
			pass(time.Second) // for the informers to end
		}()
		replica := func(lag time.Duration) *engine.Engine {
			return startWith(t, engine.Options{ // the engine ends with the test, the informer before it
				Objects: etcd.locks, Informer: lagging{Informer: etcd, ctx: ctx, lag: lag}, Limits: rules.DefaultLimits(),
			})
		}
		busy, other := replica(5*time.Millisecond), replica(4*time.Millisecond)
		acquire(t, busy, by("0"))
		answers, othersAnswer := make(chan answer, 200), make(chan answer, 1)
		for i := range 200 {
			queueUp(ctx, t, busy, waiting(fmt.Sprint(i+1), time.Hour), answers)
		}
		queueUp(t.Context(), t, other, waiting("other", time.Hour), othersAnswer)
		pass(time.Second)
		holder := "0"
		for turn := 0; turn <= 2*64+2; turn++ {
			pass(time.Millisecond)
			release(t, busy, holder)
			select {
			case next := <-answers:
				holder = next.owner
			case <-othersAnswer:
				return
			}
		}
		t.Error("the other replica got no chance")
	})
}
