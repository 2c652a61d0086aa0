package locks_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/locks"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/locktest"
	"forrst.dev/lock-operator/lock/observe"
	"forrst.dev/lock-operator/lock/rules"
)

// refusing is a backend that refuses what it is asked for, or answers like the one below if err is nil.
type refusing struct {
	lock.Backend
	err error
}

func (b *refusing) Acquire(ctx context.Context, namespace string, request lock.Request) (*v1alpha1.Lock, error) {
	if b.err != nil {
		return nil, b.err
	}
	return b.Backend.Acquire(ctx, namespace, request)
}

func TestAcquisitionsAreCountedByTheirEnd(t *testing.T) {
	backend := &refusing{Backend: locktest.New()}
	shared, caller := newLocks(t, backend)
	caller.Permit = poorPermit(t, 100)
	var counted []observe.Acquired
	door := shared.Through("rest", func(end observe.Acquired) { counted = append(counted, end) })
	acquire := func(of *locks.Locks, key string, wait time.Duration) {
		t.Helper()
		acquisition, err := of.Prepare(caller, lock.Request{Acquisition: rules.Acquisition{Key: key, TTL: time.Minute}, Wait: wait}, false)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = acquisition.Acquire(t.Context(), "f") // How it ends is counted.
	}
	acquire(door, "k", 0)
	acquire(door, "k", 0)
	acquire(door, "k", time.Millisecond)
	acquire(shared, "k", 0) // Through another door, which counts nothing.
	backend.err = lock.ErrUnavailable
	acquire(door, "k", 0)
	backend.err = &lock.RefusedError{Reason: "a quota"}
	acquire(door, "k", 0)
	backend.err = &lock.LineFullError{Bound: lock.LinePerLock}
	acquire(door, "k", 0)
	want := []observe.Acquired{
		observe.Granted, observe.Held, observe.TimedOut, observe.Unavailable, observe.Refused, observe.Limited,
	}
	if diff := cmp.Diff(want, counted); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}
