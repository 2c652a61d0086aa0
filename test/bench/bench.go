package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// scenario is one part of a run.
type scenario struct {
	name string
	run  func(*bench)
}

// bench is a running scenario, and the context in which it runs. As with testing.B, what cannot go on ends the scenario: see
// [check].
type bench struct {
	context.Context
	*cluster
	*report

	options  options
	machine  *machine
	cleanups []func()
}

// cleanup calls a function when the scenario has ended. The last one comes first.
func (b *bench) cleanup(f func()) { b.cleanups = append(b.cleanups, f) }

// temporaryFolder returns a folder that ends with the scenario.
func (b *bench) temporaryFolder() string {
	folder := must(os.MkdirTemp("", "lock-operator-bench-"))
	b.cleanup(func() { _ = os.RemoveAll(folder) }) // what is left is of no use
	return folder
}

// failure is a panic that ends a scenario, or the run before the first one.
type failure struct{ error }

// check ends the scenario with an error, unless it is nil. Only the goroutine of the scenario may call it.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// must returns a value, or ends the scenario with an error.
func must[T any](value T, err error) T {
	check(err)
	return value
}

// try runs a scenario and returns the error that has ended it.
func (b *bench) try(run func(*bench)) (err error) {
	defer func() {
		for len(b.cleanups) > 0 {
			last := len(b.cleanups) - 1
			b.cleanups[last]()
			b.cleanups = b.cleanups[:last]
		}
	}()
	defer func() {
		switch reason := recover().(type) {
		case nil:
		case failure:
			err = reason.error
		default:
			panic(reason)
		}
	}()
	run(b)
	return nil
}

// within runs a part of a scenario with cleanups of its own.
func (b *bench) within(part func(*bench)) {
	inner := *b
	inner.cleanups = nil
	check(inner.try(part))
}

// inParallel calls do with all numbers, so many at once, until one fails.
func inParallel(ctx context.Context, workers, numbers int, do func(ctx context.Context, number int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for worker := range min(workers, numbers) {
		all.Go(func() {
			for number := worker; number < numbers && ctx.Err() == nil; number += workers {
				if err := do(ctx, number); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// fill creates locks as the façade would, with keys that begin with the prefix. All end at a time, unless they are renewed.
func (b *bench) fill(prefix string, count int, ttl time.Duration, end time.Time) []*v1alpha1.Lock {
	objects := newObjects(b.operator, lockType, namespace)
	created := make([]*v1alpha1.Lock, count)
	check(inParallel(b, 32, count, func(ctx context.Context, number int) (err error) {
		lock := stampedLock(fmt.Sprintf("%s-%d", prefix, number), ownerOf(number))
		lock.Spec.TTL.Duration, *lock.Spec.ExpireTime = ttl, v1alpha1.NewTimestamp(end)
		created[number], err = objects.Create(ctx, lock, metav1.CreateOptions{})
		return err
	}))
	return created
}

// beside lets four clients acquire and release on other keys while do runs, and returns what they measured.
func (b *bench) beside(do func()) (measured measurement) {
	turn := newTurn(b, b.facade.locks(facadeName, 0), 4)
	defer turn.close()
	turn.key = func(client int) string { return fmt.Sprintf("aside-%d", client) }
	turn.hold, turn.length = 10*time.Millisecond, 24*time.Hour // until it is over
	var running sync.WaitGroup
	var err error
	running.Go(func() { measured, err = turn.run(b) })
	func() {
		defer running.Wait()
		defer turn.isOver.Store(true)
		do()
	}()
	check(err)
	return measured
}
