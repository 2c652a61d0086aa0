package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// Programs that contend for one lock, each with an engine of its own, see its end at the same
// moment.
func TestAReleaseCostsFewWritesHoweverManyEnginesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			programs = 30
			latency  = 5 * time.Millisecond
			warmUp   = 10 * time.Second
			measured = 90 * time.Second // so that luck evens out
		)
		behind := newAdmitting()
		behind.inject(faults{before: func(string) error { pass(latency); return nil }})
		ctx, cancel := context.WithCancel(t.Context())
		informers, stopInformers := context.WithCancel(context.WithoutCancel(ctx))
		grants := make([]atomic.Int64, programs)
		var all sync.WaitGroup
		for i := range programs {
			program := startWith(t, engine.Options{
				Objects:  func(string) engine.Objects { return behind },
				Informer: lagging{Informer: behind, ctx: informers, lag: latency},
				Limits:   rules.DefaultLimits(), IsAdmitted: true,
			})
			program.DrawFrom(rand.New(rand.NewPCG(1, uint64(i))).Float64)
			all.Go(func() {
				for ctx.Err() == nil {
					request := waiting(fmt.Sprint(i), time.Hour)
					if _, err := program.Acquire(ctx, "default", request); err != nil {
						return
					}
					grants[i].Add(1)
					pass(20 * time.Millisecond)
					_ = program.Release(ctx, "default", key, lock.Proof{Owner: request.Owner})
				}
			})
		}
		pass(warmUp)
		behind.made()
		for i := range grants {
			grants[i].Store(0)
		}
		pass(measured)
		made, got, each := behind.made(), 0, make([]int, programs)
		for i := range grants {
			each[i] = int(grants[i].Load())
			got += each[i]
		}
		writes := 0
		for _, verb := range made {
			if verb == "create" || verb == "update" {
				writes++
			}
		}
		t.Logf("%d grants in %v, %d to %d for each program, %.1f tries and %.1f requests for each", got, measured,
			slices.Min(each), slices.Max(each), float64(writes)/float64(got), float64(len(made))/float64(got))
		if got < int(measured/(60*time.Millisecond)) || writes > 8*got {
			t.Errorf("%d grants took %d tries", got, writes)
		}
		if fair := got / programs; slices.Min(each) < fair/4 {
			t.Errorf("one program got %d grants of a fair %d", slices.Min(each), fair)
		}
		cancel()
		all.Wait()
		pass(time.Second)
		stopInformers()
		pass(time.Second)
	})
}
