package lock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
)

func ExampleClient_Do() {
	locks := lock.NewClient(locktest.New(), "payments")
	err := locks.Do(context.Background(), "billing:report", func(_ context.Context, held *lock.Held) error {
		fmt.Println("writing the report under", held.Key())
		return nil
	})
	fmt.Println(err)
	// Output:
	// writing the report under lock:billing:report
	// <nil>
}

func ExampleClient_DoAll() {
	locks := lock.NewClient(locktest.New(), "payments")
	err := locks.DoAll(context.Background(), []string{"stock:us", "stock:eu"}, func(_ context.Context, held *lock.HeldAll) error {
		fmt.Println("moving between", held.Locks()[0], "and", held.Locks()[1])
		return nil
	})
	fmt.Println(err)
	// Output:
	// moving between lock:stock:eu and lock:stock:us
	// <nil>
}

func ExampleClient_Acquire() {
	ctx := context.Background()
	locks := lock.NewClient(locktest.New(), "payments")
	held, err := locks.Acquire(ctx, "billing:report",
		lock.WithTTL(time.Minute), lock.WithWait(10*time.Second), lock.WithReason("monthly close"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = held.Release(ctx) }()

	for page := range 3 {
		select {
		case <-held.Done():
			fmt.Println("lost:", held.Err())
			return
		default:
			fmt.Println("page", page)
		}
	}
	// Output:
	// page 0
	// page 1
	// page 2
}

func ExampleClient_TryAcquire() {
	ctx := context.Background()
	backend := locktest.New(locktest.WithHolder("alice"))
	locks := lock.NewClient(backend, "payments")
	held, err := locks.TryAcquire(ctx, "billing:report")
	fmt.Println("first:", err)

	_, err = locks.TryAcquire(ctx, "billing:report", lock.WithRetry(lock.RetryPolicy{Base: time.Millisecond, Tries: 3}))
	if holder, ok := errors.AsType[*lock.HeldError](err); ok {
		fmt.Println("second: held by", holder.Holder)
	}
	fmt.Println("released:", held.Release(ctx))
	// Output:
	// first: <nil>
	// second: held by alice
	// released: <nil>
}

// storage stands for what the lock protects. It checks that writes are in the order of
// the grants they were made under.
type storage struct{ largest int64 }

func (s *storage) write(text string, token int64) error {
	if token < s.largest {
		return fmt.Errorf("refused %q: it was written under an earlier grant of the lock", text)
	}
	s.largest = token
	return nil
}

// A former holder that has not noticed the loss of its lock cannot overwrite the writes of the
// next holder.
func ExampleHeld_FencingToken() {
	ctx := context.Background()
	backend := locktest.New()
	locks := lock.NewClient(backend, "payments")
	first, _ := locks.Acquire(ctx, "billing:report")
	_ = backend.Expire("payments", v1alpha1.FullKeyOf("billing:report"))
	second, _ := locks.Acquire(ctx, "billing:report")

	report := &storage{}
	fmt.Println(report.write("new", second.FencingToken()))
	fmt.Println(report.write("old", first.FencingToken()))
	fmt.Println(second.Release(ctx))
	_ = first.Release(ctx)
	// Output:
	// <nil>
	// refused "old": it was written under an earlier grant of the lock
	// <nil>
}

func ExampleHeld_Err() {
	ctx := context.Background()
	locks := lock.NewClient(locktest.New(), "payments")
	held, _ := locks.Acquire(ctx, "billing:report")
	_ = locks.ForceRelease(ctx, "billing:report", "holder is stuck")

	<-held.Done()
	fmt.Println(held.Err())
	fmt.Println(errors.Is(held.Release(ctx), lock.ErrForceReleased))
	// Output:
	// lock:billing:report: lock was force-released: lock is not held
	// true
}

// A function that locks what its caller has locked would wait for ever.
func ExampleHeld_Context() {
	locks := lock.NewClient(locktest.New(), "payments")
	err := locks.Do(context.Background(), "billing:report", func(ctx context.Context, _ *lock.Held) error {
		_, err := locks.Acquire(ctx, "billing:report")
		return err
	})
	fmt.Println(errors.Is(err, lock.ErrDoubleLock))
	fmt.Println(err)
	// Output:
	// true
	// double lock: lock:billing:report in namespace payments is held in this context already
}

func ExampleClient_Get() {
	ctx := context.Background()
	locks := lock.NewClient(locktest.New(), "payments")
	held, _ := locks.Acquire(ctx, "billing:report", lock.WithOwner("secret"), lock.WithReason("monthly close"))
	defer func() { _ = held.Release(ctx) }()

	info, err := locks.Get(ctx, "billing:report")
	fmt.Println(info.Key, info.Owner, info.Reason, err)
	// Output: 0286042c08ba724b0518246d 2bb80d537b1da3e38bd30361 monthly close <nil>
}
