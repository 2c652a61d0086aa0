package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/rules"
)

// A worker loses its lock to another one while it is too slow to renew it.
func Example() {
	ctx := context.Background()
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	backend := locktest.New(locktest.WithClock(clock))
	key := v1alpha1.FullKeyOf("billing:report")
	by := func(owner string) lock.Request {
		return lock.Request{Acquisition: rules.Acquisition{Key: "billing:report", Owner: owner, TTL: 30 * time.Second}}
	}

	first, err := backend.Acquire(ctx, "default", by("worker-1"))
	fmt.Println("worker-1:", first.Spec.ExpireTime, err)
	_, err = backend.Acquire(ctx, "default", by("worker-2"))
	fmt.Println("worker-2:", err)

	clock.Step(30 * time.Second)
	second, err := backend.Acquire(ctx, "default", by("worker-2"))
	fmt.Println("worker-2:", second.Spec.ExpireTime, err)
	_, err = backend.Renew(ctx, "default", key, lock.Proof{Owner: "worker-1"}, 0)
	fmt.Println("worker-1:", err, errors.Is(err, lock.ErrOwnerMismatch))
	// Output:
	// worker-1: 2026-11-20T12:00:30.000000Z <nil>
	// worker-2: lock:billing:report is held by "locktest" until 2026-11-20T12:00:30.000000Z
	// worker-2: 2026-11-20T12:01:00.000000Z <nil>
	// worker-1: renew lock:billing:report in namespace default: lock is held by another owner true
}

// A job that needs the lock service is tested without it.
func ExampleBackend_SetUnavailable() {
	backend := locktest.New()
	backend.SetUnavailable(true)
	_, err := backend.Acquire(context.Background(), "default", lock.Request{Acquisition: rules.Acquisition{Key: "billing:report"}})
	fmt.Println(errors.Is(err, lock.ErrUnavailable))
	// Output: true
}

// A worker learns that its lock has expired.
func ExampleBackend_Expire() {
	ctx := context.Background()
	backend := locktest.New()
	locks := lock.NewClient(backend, "payments")
	held, _ := locks.Acquire(ctx, "billing:report")
	_ = backend.Expire("payments", held.Key())
	<-held.Done()
	fmt.Println(errors.Is(held.Err(), lock.ErrExpired))
	// Output: true
}
