package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
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
			measured = 30 * time.Second
		)
		behind := newAdmitting()
		behind.inject(faults{before: func(string) error { pass(latency); return nil }})
		ctx, cancel := context.WithCancel(t.Context())
		informers, stopInformers := context.WithCancel(context.WithoutCancel(ctx))
		grants := make([]int, programs)
		var all sync.WaitGroup
		for i := range programs {
			program := startWith(t, engine.Options{
				Objects:  func(string) engine.Objects { return behind },
				Informer: lagging{Informer: behind, ctx: informers, lag: latency},
				Limits:   rules.DefaultLimits(), IsAdmitted: true,
			})
			all.Go(func() {
				for ctx.Err() == nil {
					request := waiting(fmt.Sprint(i), time.Hour)
					if _, err := program.Acquire(ctx, "default", request); err != nil {
						return
					}
					grants[i]++
					pass(20 * time.Millisecond)
					_ = program.Release(ctx, "default", key, lock.Proof{Owner: request.Owner})
				}
			})
		}
		pass(warmUp)
		behind.made()
		before := slices.Clone(grants)
		pass(measured)
		made, got := behind.made(), 0
		for i := range grants {
			grants[i] -= before[i]
			got += grants[i]
		}
		writes := 0
		for _, verb := range made {
			if verb == "create" || verb == "update" {
				writes++
			}
		}
		t.Logf("%d grants in %v, %d to %d for each program, %.1f tries and %.1f requests for each", got, measured,
			slices.Min(grants), slices.Max(grants), float64(writes)/float64(got), float64(len(made))/float64(got))
		if got < int(measured/(60*time.Millisecond)) || writes > 8*got {
			t.Errorf("%d grants took %d tries", got, writes)
		}
		if fair := got / programs; slices.Min(grants) < fair/4 {
			t.Errorf("one program got %d grants of a fair %d", slices.Min(grants), fair)
		}
		cancel()
		all.Wait()
		pass(time.Second)
		stopInformers()
		pass(time.Second)
	})
}
