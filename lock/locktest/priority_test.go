package locktest_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
)

func TestTheHighestPriorityIsServedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lock.NewClient(locktest.New(), "default")
		held, err := locks.Acquire(t.Context(), "report")
		if err != nil {
			t.Fatal(err)
		}
		var order []int32
		var all sync.WaitGroup
		for _, priority := range []int32{0, -1, 5, 7} {
			all.Go(func() {
				err := locks.Do(t.Context(), "report", func(context.Context, *lock.Held) error { order = append(order, priority); return nil }, lock.WithPriority(priority), lock.WithWait(time.Minute))
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if err := held.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if want := []int32{7, 5, 0, -1}; !slices.Equal(order, want) {
			t.Errorf("the order of grants is %v, want %v", order, want)
		}
	})
}
